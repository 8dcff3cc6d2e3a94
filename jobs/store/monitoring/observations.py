"""What only the database knows of causes: a few small queries' answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Death:
    """A worker that ended without a goodbye. how: killed, crashed, hung or silent."""

    incarnation: int
    pool: str
    device: str
    how: str
    ago_s: float


@dataclass(frozen=True, slots=True)
class Receiver:
    """A host that webhooks wait for. oldest_s: how long the longest has waited since it was first
    to be sent; error: what the last try ended with."""

    host: str
    waiting: int
    tries: int
    oldest_s: float
    error: str


@dataclass(frozen=True, slots=True)
class LockWait:
    """Transactions that wait for a lock: how many, the longest, on what, and the process of
    PostgreSQL that the longest waits for."""

    waiting: int = 0
    longest_s: float = 0.0
    on: str = ""
    blocker: int = 0


@dataclass(frozen=True, slots=True)
class ModelObservation:
    """A model in the workers that live: how many have it in each state, and why it failed."""

    states: Mapping[str, int] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True)
class Observations:
    """models: by name@version; suspects: slices that run alone since workers died with them."""

    models: Mapping[str, ModelObservation] = field(default_factory=dict)
    deaths: tuple[Death, ...] = ()
    suspects: int = 0
    receivers: tuple[Receiver, ...] = ()
    locks: LockWait = LockWait()
