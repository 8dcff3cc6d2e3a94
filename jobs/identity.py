"""Who is asking, and what they may do. The tenant comes from the credential alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Scope = Literal["read", "submit", "infer", "operate", "admin"]
"""read: jobs, results, usage, models; submit: jobs, and the verbs of one's own; infer: calls;
operate: to read, and use verbs on, what is other tenants'; admin: keys, tenants, limits, audit."""

Role = Literal["tenant", "operator", "admin"]

SCOPES: tuple[Scope, ...] = get_args(Scope)
ROLES: Mapping[Role, frozenset[Scope]] = {
    "tenant": frozenset({"read", "submit", "infer"}),
    "operator": frozenset({"read", "submit", "infer", "operate"}),
    "admin": frozenset(SCOPES),
}
"""What a role may at most; a key may have fewer scopes."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a tenant may use at most; None: as much as it likes. model: a name, or "" for all models
    together; key: of one key (`key_…`), or "" for all of them together."""

    model: str = ""
    key: str = ""
    requests_per_s: float | None = None
    tokens_per_s: float | None = None
    calls_in_flight: int | None = None
    queued_items: int | None = None
    stored_bytes: int | None = None
    job_items: int | None = None


@dataclass(frozen=True, slots=True)
class Caller:
    """One who was recognized. actor: a key's id (`key_…`), a token's subject (`oidc:…`), or
    "loopback".

    weight, limits: the tenant's, as far as they concern this credential; spent: this month's hard
    cap is reached.
    """

    tenant: str
    role: Role
    scopes: frozenset[Scope]
    actor: str
    weight: float = 1.0
    limits: tuple[Limit, ...] = ()
    spent: bool = False

    @property
    def key_id(self) -> str:
        """Of the API key that it came by; "" for others."""
        return self.actor if self.actor.startswith("key_") else ""

    def may(self, scope: Scope) -> bool:
        return scope in self.scopes


OPEN = Caller("default", "admin", ROLES["admin"], "loopback")
"""Everybody on loopback, as long as no key was made."""
