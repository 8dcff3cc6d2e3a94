"""Callers and their permissions. The tenant comes from the credential alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal[
    "read",  # jobs, results, usage, models
    "submit",  # jobs, and verbs on one's own
    "infer",  # calls
    "operate",  # read, and verbs, across tenants
    "admin",  # keys, tenants, limits, audit
]

Role = Literal["tenant", "operator", "admin"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
ROLES: Mapping[Role, frozenset[Scope]] = {
    "tenant": frozenset({"read", "submit", "infer"}),
    "operator": frozenset({"read", "submit", "infer", "operate"}),
    "admin": frozenset(SCOPES),
}
"""Most scopes of each role; a key may have fewer."""


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits of a tenant; None: no limit."""

    model: str = ""  #: name; "": all models together
    key: str = ""  #: id of one key (`key_…`); "": all keys together
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    tokens_per_min: float | None = None
    calls_in_flight: int | None = None
    queued_items: int | None = None
    stored_bytes: int | None = None
    job_items: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """Authenticated caller."""

    tenant: str
    role: Role
    scopes: frozenset[Scope]
    actor: str  #: id of a key (`key_…`), subject of a token (`oidc:…`), or "loopback"
    weight: float = 1.0  #: fair-share weight of the tenant
    limits: tuple[Limit, ...] = ()  #: of the tenant, as far as they concern this credential
    spent: bool = False  #: the hard cap of this month is reached

    @property
    def key_id(self) -> str:
        """Id of the API key; "" for other credentials."""
        return self.actor if self.actor.startswith("key_") else ""

    def may(self, scope: Scope) -> bool:
        """Returns True if the credential has this scope."""
        return scope in self.scopes


OPEN = Caller("default", "admin", ROLES["admin"], "loopback")
"""Every caller on loopback, as long as there is no key."""
