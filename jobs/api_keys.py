"""API keys: made here, shown once, known by their hash; and how tenants may be called."""

import hashlib
import re
import secrets
from dataclasses import dataclass, field

from jobs.errors import Fault, Invalid
from jobs.identity import ROLES, Role, Scope

_BYTES = 32
_KEY = re.compile(r"mk_[A-Za-z0-9_-]{43}")
_HINT = 8
"""Characters that a key is known by in lists; what follows has more than 220 random bits."""

TENANT = r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}$"
_TENANT = re.compile(TENANT)
MAX_OVERLAP_S = 90 * 86_400.0
OVERLAP_S = 86_400.0
"""So long a key is good beside the one that it was rotated to."""


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key as it is to be made. scopes: of its role, or fewer; ttl_s: None: for ever."""

    tenant: str
    name: str = ""
    role: Role = "tenant"
    scopes: frozenset[Scope] | None = None
    ttl_s: float | None = None
    secret: str = field(default_factory=lambda: generate(), repr=False)

    @property
    def granted(self) -> list[Scope]:
        return sorted(ROLES[self.role] if self.scopes is None else self.scopes)


def generate() -> str:
    return "mk_" + secrets.token_urlsafe(_BYTES)


def is_key(text: str) -> bool:
    """Whether it looks like one."""
    return _KEY.fullmatch(text) is not None


def hash_key(key: str) -> bytes:
    """What is stored of a key. It needs no salt, and no slow hash: nobody guesses 256 bits."""
    return hashlib.sha256(key.encode()).digest()


def key_hint(key: str) -> str:
    return key[:_HINT]


def is_tenant(name: str) -> bool:
    return _TENANT.fullmatch(name) is not None


def validate(asked: NewKey) -> None:
    """Raises Invalid, with everything that is wrong with it."""
    faults = []
    if not is_tenant(asked.tenant):
        why = "1 to 100 letters, digits and ._:@-, a letter or digit first"
        faults.append(Fault(("tenant",), "name", why))
    if not set(asked.granted) <= ROLES[asked.role]:
        most = ", ".join(sorted(ROLES[asked.role]))
        faults.append(Fault(("scopes",), "scope", f"the role {asked.role} has {most} at most"))
    if not asked.granted:
        faults.append(Fault(("scopes",), "scope", "a key needs one scope or more"))
    if faults:
        raise Invalid("; ".join(fault.message for fault in faults), faults=faults)
