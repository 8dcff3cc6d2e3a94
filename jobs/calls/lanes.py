"""The lanes of one model version: what every implementation does.

A lane's name is its batch key's parameters and its bucket ("normalize=false/64"). Two
implementations, in Redis and in memory, pass one conformance suite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, Protocol

import orjson

from jobs.calls.messages import Call, CallUsage, Reply
from jobs.calls.quotas import FREE, Exceeded, Quota

RejectReason = Literal["no_worker", "overloaded", "late", "quota"]

ALONE = "alone:"
"""Before the name of a lane whose calls were in the hands of a worker that died: each is launched
by itself, since it may be the reason, and not once more after that."""

WORKER_LOST = ("worker_lost", "two workers died while they had this call in hand")
"""What a call is answered with after its second death."""

TOO_LATE = ("deadline_passed", "there is too little time left for a launch")
"""What a call is answered with that was let in, but would come too late."""

PROBED_AFTER_MS = 5000
"""An idle pool that has not launched for so long takes a call that it seems too slow for: what is
predicted may be wrong, and only a launch can tell."""

WANTED_MS = 10_000
"""A model that was asked for so recently is wanted, though no worker is ready for it."""


_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a call is let in, in predicted milliseconds; without any, nothing is refused
    for its time.

    allowed_ms: it must be answered within this; one_ms, step_ms: its launch if it were alone, and
    what each call that shares it adds; full_rows, full_ms: those of its lane that share a launch
    at most, and how long that takes; slots: launches at a time of one replica.
    """

    allowed_ms: float = inf
    one_ms: float = 0.0
    step_ms: float = 0.0
    full_rows: int = 1
    full_ms: float = 0.0
    slots: int = 1

    def wait_ms(self, free_ms: Sequence[float], others_ms: float, rows: int) -> float:
        """Until a new call's launch starts. Before it are launches of other lanes (others_ms)
        and the full ones of its own, where `rows` come before it; they take the slots in turn.
        free_ms: until each slot is free, ascending."""
        before_ms = others_ms + rows // self.full_rows * self.full_ms
        before = int(before_ms / self.full_ms + _ROUNDING) if self.full_ms else 0
        rounds, slot = divmod(before, len(free_ms))
        return free_ms[slot] + rounds * self.full_ms

    def launch_ms(self, rows: int, before: int) -> float:
        """The launch of a new call, where so many of its lane wait, and so many before it."""
        sharing = min(rows - before // self.full_rows * self.full_rows, self.full_rows - 1)
        return self.one_ms + sharing * self.step_ms

    def cost_ms(self, rows: int) -> float:
        """What a new call adds to the launches of its lane, where so many wait."""
        return self.step_ms if rows % self.full_rows else self.one_ms


@dataclass(frozen=True, slots=True)
class TenantShare:
    """Where a tenant stands among those whose calls wait: how many wait in all lanes, how many of
    them are its own, its weight, and the weights of all these tenants, with its own."""

    waiting: int
    own: int
    weight: float
    weights: float

    @property
    def before(self) -> float:
        """Calls that are launched before a new one of this tenant, at most: tenants take turns."""
        return min(self.waiting, (self.own + 1) * self.weights / self.weight)

    def has_its_share(self, most: int) -> bool:
        """Of the room for `most`."""
        return self.own * self.weights >= most * self.weight


def mean_gap(before_ms: float, gap_ms: float) -> float:
    """The mean distance of calls, after one that came gap_ms after the one before: about the last
    fifty count, or the last second."""
    if before_ms == 0:
        return gap_ms
    return before_ms + (gap_ms - before_ms) * min(1.0, max(0.02, gap_ms / 1000))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a call isn't let in, and how long it would have waited for its launch, or for its
    quota."""

    why: RejectReason
    wait_ms: float = 0.0
    exceeded: Exceeded | None = None


@dataclass(frozen=True, slots=True)
class LaneState:
    """One lane as it stands: its name, calls waiting, their sizes together, and when the most
    urgent is due."""

    lane: str
    rows: int
    units: int
    due_ms: float


@dataclass(frozen=True, slots=True)
class LanesState:
    """All lanes of a model at one moment of the lanes' own clock.

    last_launch_ms, last_took_ms: when the pool's latest launch left, and how long it was predicted
    to take; called_ms, gap_ms: when the latest call came, and how far apart they come on average
    (0: not known); watched_ms, watcher: until when an idle slot waits for the calls that are here,
    and which; replicas: ready workers; busy: until when each slot is predicted to be, where it is.
    """

    now_ms: float
    lanes: Sequence[LaneState]
    last_launch_ms: float
    last_took_ms: float
    called_ms: float
    gap_ms: float
    watched_ms: float
    watcher: str
    replicas: int
    busy: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Ticket:
    """A finished decision: `slot` launches up to `rows` calls of this lane, with up to `units` of
    size in all (0: no bound), unless the pool launched after `launched_before_ms`. No rows: it
    launches something else.

    Tenants take turns by what they were given, in rows, or in units where those are bounded, by
    weight; of one tenant the most urgent goes first. took_ms: the predicted time of this launch;
    needs_ms: a call with a deadline sooner than this is not worth taking; worker: who takes them,
    and will be there for at least `lease_ms`; hand: what tells this take from its others.
    """

    lane: str
    rows: int
    units: int
    launched_before_ms: float
    took_ms: float
    needs_ms: float
    reason: str
    worker: str
    slot: str
    lease_ms: float
    token: int = 0


class CallLanes(Protocol):
    """The lanes of one model version."""

    def put(
        self,
        call: Call,
        *,
        target_ms: int,
        timeout_ms: int,
        most: int,
        terms: Terms,
        quota: Quota = FREE,
    ) -> Rejection | None:
        """Queues a call, due after the smaller of target and timeout; says why where it can't:
        no ready worker (who asked is remembered for WANTED_MS), a quota that is used up, already
        `most` calls waiting and its tenant's share of them, or an answer that would come too late.
        Only a call that is let in is charged to its quota."""
        ...

    def look(self, slot: str) -> LanesState:
        """slot: who asks, and is not busy any more."""
        ...

    def take(self, ticket: Ticket) -> list[Call] | None:
        """Pops what the ticket names, to be answered by its worker; calls that it would come too
        late for are answered with TOO_LATE on the way. None: the pool launched meanwhile."""
        ...

    def abort(self, worker: str, hand: int) -> None:
        """Puts back what such a take gave, if it gave anything: its worker never heard of it."""
        ...

    def watch(self, slot: str, until_ms: float, rows: int) -> None:
        """An idle slot looks again then: until then a call rings no bell, but the one that makes
        so many in its lane."""
        ...

    def wait_for_wakeup(self, slot: str, timeout_s: float) -> None:
        """Blocks until the bell rings, this slot is woken, or the time is over."""
        ...

    def notify(self, slot: str) -> None:
        """Ends what this slot hears, now or as soon as it listens."""
        ...

    def drop(self, call: Call) -> None:
        """Forgets a call whose client went away, waiting or taken."""
        ...

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        """Sends the replies of one launch to one api process, in one message; their calls are
        forgotten, and counted where they were known, in the same step."""
        ...

    def usage(self, *, unfinished: bool = False) -> list[CallUsage]:
        """What calls used in the minutes that are over, until it is forgotten; or in this one
        too."""
        ...

    def forget_usage(self, used: Sequence[CallUsage]) -> None:
        """Forgets minutes that were moved elsewhere."""
        ...

    def announce(
        self, worker: str, ttl_s: float, *, ready: bool = True, profile: bytes = b""
    ) -> None:
        """This worker is there for so long (0: no longer), and is ready for calls or not. profile:
        how long its launches take (jobs/calls/profile.py)."""
        ...

    def profile(self) -> bytes:
        """The latest that a worker announced; empty: none did."""
        ...

    def wanted(self) -> bool:
        """Whether a call was refused within WANTED_MS because no worker was ready."""
        ...

    def flushes(self) -> dict[str, int]:
        """Launches with calls, by the reason that they left for, since Redis began."""
        ...

    def recover(self) -> int:
        """Calls in the hands of workers that are gone: put back at their first death, to run
        alone; answered with WORKER_LOST at their second. Returns how many; any number of
        keepers may do so at once. Taken calls past their deadline are forgotten."""
        ...


def lane_name(params: Mapping[str, Any], bucket: int) -> str:
    """The lane of a batch key (within its model version) and a bucket."""
    return f"{orjson.dumps(params, option=orjson.OPT_SORT_KEYS).decode()}/{bucket}"


def lane_parts(lane: str) -> tuple[dict[str, Any], int]:
    """The parameters and the bucket of a lane, whether or not its calls run alone."""
    params, _, bucket = lane.removeprefix(ALONE).rpartition("/")
    return orjson.loads(params), int(bucket)


def bucket_of(size: int, buckets: Sequence[int]) -> int:
    """The upper end of the bucket that a size falls into; 0 where there are no buckets."""
    if not buckets:
        return 0
    return next((top for top in buckets if size <= top), buckets[-1])
