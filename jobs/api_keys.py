"""API keys: generated here, shown once, stored as a hash; and names of tenants."""

import hashlib
import re
import secrets
from dataclasses import dataclass, field

from jobs.errors import Fault, Invalid
from jobs.identity import ROLES, Role, Scope

_BYTES = 32
_KEY = re.compile(r"mk_[A-Za-z0-9_-]{43}")
_HINT = 8  # characters of a key that lists show; the rest has more than 220 random bits

TENANT = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}$"
_TENANT = re.compile(TENANT)
MAX_OVERLAP_S = 90 * 86_400.0
OVERLAP_S = 86_400.0
"""Time for which a rotated key remains valid."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """Key to be created."""

    tenant: str
    name: str = ""
    role: Role = "tenant"
    scopes: frozenset[Scope] | None = None  #: None: all of its role
    ttl_s: float | None = None  #: None: it doesn't expire
    secret: str = field(default_factory=lambda: generate(), repr=False)

    @property
    def granted(self) -> list[Scope]:
        """Scopes of the key, sorted."""
        return sorted(ROLES[self.role] if self.scopes is None else self.scopes)


def generate() -> str:
    """Returns a new random key."""
    return "mk_" + secrets.token_urlsafe(_BYTES)


def is_key(text: str) -> bool:
    """Returns True if a text has the form of a key."""
    return _KEY.fullmatch(text) is not None


def hash_key(key: str) -> bytes:
    """Returns the hash that is stored; 256 random bits need no salt and no slow hash."""
    return hashlib.sha256(key.encode()).digest()


def key_hint(key: str) -> str:
    """Returns the part of a key that lists show."""
    return key[:_HINT]


def is_tenant(name: str) -> bool:
    """Returns True if a text may name a tenant."""
    return _TENANT.fullmatch(name) is not None


def validate(key: NewKey) -> None:
    """Raises Invalid with everything that is wrong with a new key."""
    faults = []
    if not is_tenant(key.tenant):
        why = "1 to 100 letters, digits and ._:@-, a letter or digit first"
        faults.append(Fault(("tenant",), "name", why))
    if not set(key.granted) <= ROLES[key.role]:
        most = ", ".join(sorted(ROLES[key.role]))
        faults.append(Fault(("scopes",), "scope", f"the role {key.role} has {most} at most"))
    if not key.granted:
        faults.append(Fault(("scopes",), "scope", "a key needs one scope or more"))
    if faults:
        raise Invalid("; ".join(fault.message for fault in faults), faults=faults)
