"""Causes that only the database knows: answers of a few small queries."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Death:
    """A worker that ended unexpectedly."""

    incarnation: int  #: the worker
    pool: str  #: its pool
    device: str  #: its device
    how: str  #: killed, crashed, hung or silent
    ago_s: float  #: time since its end, s


@dataclass(frozen=True, slots=True)
class SickWorker:
    """A worker that ended because its device failed."""

    incarnation: int  #: the worker
    pool: str  #: its pool
    device: str  #: its device
    error: str  #: error of the device; empty: not known
    quarantined: bool  #: True if no other is started in its place
    ago_s: float  #: time since its end, s


@dataclass(frozen=True, slots=True)
class Receiver:
    """A host that webhooks wait for."""

    host: str  #: host of their URLs
    waiting: int  #: deliveries that wait
    tries: int  #: tries that they have had together
    oldest_s: float  #: time since the first of them was due, s
    error: str  #: error of the last try


@dataclass(frozen=True, slots=True)
class LockWait:
    """Transactions that wait for a lock."""

    waiting: int = 0  #: number of them
    longest_s: float = 0.0  #: longest wait, s
    on: str = ""  #: object that the longest waits for
    blocker: int = 0  #: PostgreSQL's process that the longest waits for


@dataclass(frozen=True, slots=True)
class ModelObservation:
    """A model in the living workers."""

    states: Mapping[str, int] = field(default_factory=dict)  #: workers that have it, by state
    error: str = ""  #: reason of its failure in one of them
    drained: tuple[int, ...] = ()  #: workers that have it, and that an operator drained


@dataclass(frozen=True, slots=True)
class Observations:
    """Answers of the database at one moment."""

    models: Mapping[str, ModelObservation] = field(default_factory=dict)  #: by name@version
    deaths: tuple[Death, ...] = ()  #: latest first
    sick: tuple[SickWorker, ...] = ()  #: quarantined ones first, then the latest
    suspects: int = 0  #: slices that run alone because workers died with them
    receivers: tuple[Receiver, ...] = ()  #: the one that waits longest first
    locks: LockWait = LockWait()  #: waits for locks
