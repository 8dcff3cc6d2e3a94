"""Names of the keys in Redis."""

from dataclasses import dataclass
from urllib.parse import quote

_KEYS = ("lanes", "calls", "ready", "bell", "pool", "taken", "alive", "busy", "served", "bounded")


@dataclass(frozen=True, slots=True)
class Keys:
    """Names of the keys of one model version's lanes; all have one hash tag, and so one slot."""

    model: str
    clustered: bool = False  #: on a Redis Cluster

    def __call__(self, what: str) -> str:
        return f"millrace:{{{self.model}}}:{what}"

    def all(self) -> list[str]:
        """Returns the keys that every script gets, in the order of lua/keys.lua."""
        return [self(what) for what in _KEYS]

    @property
    def wakeups(self) -> str:
        """Key of the wake-up list; fleets of two releases share its name."""
        return self("bell")

    def wakeups_of(self, tier: int) -> str:
        """Returns the key of the wake-up list of a tier (jobs/calls/tiers/tier.py)."""
        return f"{self.wakeups}:{tier}" if tier else self.wakeups

    @property
    def unsettled(self) -> str:
        """Key of the list of ended calls whose quotas a keeper settles, on a cluster."""
        return self("unsettled")

    def lane(self, lane: str) -> str:
        """Returns the key of a lane."""
        return self("lane:" + lane)

    def wake(self, slot: str) -> str:
        """Returns the key of the list that wakes one slot."""
        return self("wake:" + slot)

    def prefix(self, digest: str) -> str:
        """Returns the key that names the slot whose cache has the beginning of some calls."""
        return self("prefix:" + digest)

    def cancelled(self, worker: str) -> str:
        """Returns the key of the list of a worker's calls that were dropped after it took them."""
        return self("cancelled:" + worker)

    def log(self, id: str) -> str:
        """Returns the key of the log of a call that generates."""
        return self("log:" + id)

    def replies(self, reply_to: str) -> str:
        """Returns the key of the list of an api process's replies: one for all models or, on a
        cluster, one in the slot of each."""
        return self("replies:" + reply_to) if self.clustered else reply_key(reply_to)


def reply_key(reply_to: str) -> str:
    """Returns the key of the list that an api process reads its replies from."""
    return f"millrace:replies:{reply_to}"


def rates_key(tenant: str) -> str:
    """Returns the key of a tenant's rates, whose slot is that of all its quotas."""
    return f"millrace:rates:{{{quote(tenant)}}}"


def open_key(tenant: str, bound: str) -> str:
    """Returns the key of a bound on open calls of a tenant."""
    return f"millrace:open:{{{quote(tenant)}}}:{bound}"
