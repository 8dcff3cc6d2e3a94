"""Protocol of the lanes of one model version, and the values that pass through it.

A lane's name is its batch key's parameters and its bucket ('{"normalize":false}/64'), behind the
cohort of its calls where they have one: no launch mixes cohorts. Two implementations, in Redis and
in memory, pass one conformance suite.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Literal, Protocol

import orjson

from jobs.calls.messages import Call, CallUsage, Reply
from jobs.calls.quotas import FREE, Exceeded, Quota
from jobs.calls.streams.log import CallLog, Progress
from jobs.calls.tiers.tier import Speed, Tiers

RejectReason = Literal["no_worker", "overloaded", "late", "quota"]

ALONE = "alone:"
"""Prefix of a lane whose calls were taken by a worker that died before they generated anything:
each is launched by itself, since it may be the reason, and not once more after that."""

ON_DEMAND = "on-demand:"
"""Prefix of a lane of calls that stay with workers that aren't spot, where both kinds are ready.
Where they run alone, that prefix comes first."""

WORKER_LOST = ("worker_lost", "two workers died while they had this call in hand")
"""Error of a call whose second worker died."""

TOO_LATE = ("deadline_passed", "there is too little time left for a launch")
"""Error of a call that was admitted, but would be answered too late."""

PROBED_AFTER_MS = 5000
"""Idle time after which a pool admits a call that it seems too slow for: the prediction may be
wrong, and only a launch can tell."""

API_ALIVE_S = 5.0
"""Time for which a sign of life of an api process holds."""

API_SILENT = (
    "transient",
    "the api process that waited for this call was silent for too long; send it again",
)
"""Error of a call that was dropped as that of a dead api process, told to one that lives."""

RESUME_WITHIN_S = 30
"""Time for which a call runs on whose api process died, until a client comes back for its stream;
one that asked for another time has that."""

WANTED_MS = 10_000
"""Time for which a call that found no ready worker makes its model wanted."""


_ROUNDING = 1e-6
_LATE_SHARE = 0.1  # of the time that a call had, which others may need when all of it is over


@dataclass(frozen=True, slots=True)  # cached by its hash (jobs/calls/tiers/admission.py)
class Terms:
    """Terms of admission of a call, in predicted time; the default rejects none for its time."""

    allowed_ms: float = inf  #: time within which it must be answered
    one_ms: float = 0.0  #: launch of a single call
    step_ms: float = 0.0  #: time that each further call adds to a launch
    full_rows: int = 1  #: most calls of its lane that share a launch
    full_ms: float = 0.0  #: launch of so many calls
    slots: int = 1  #: concurrent launches of one replica
    #: those of slower replicas, the fastest of them first (jobs/calls/tiers/admission.py)
    others: tuple["Terms", ...] = ()

    def wait_ms(self, free_ms: Sequence[float], others_ms: float, rows: int) -> float:
        """Returns the time until a new call's launch starts.

        Launches of other lanes (others_ms) and the full ones of its own, where `rows` come before
        it, take the slots in turn. free_ms: time until each slot is free, ascending.
        """
        before_ms = others_ms + rows // self.full_rows * self.full_ms
        before = int(before_ms / self.full_ms + _ROUNDING) if self.full_ms else 0
        rounds, slot = divmod(before, len(free_ms))
        return free_ms[slot] + rounds * self.full_ms

    def launch_ms(self, rows: int, before: int) -> float:
        """Returns the time of its launch, where `rows` of its lane wait, `before` ahead of it."""
        sharing = min(rows - before // self.full_rows * self.full_rows, self.full_rows - 1)
        return self.one_ms + sharing * self.step_ms

    @property
    def at_once(self) -> "Terms":
        """Terms that admit a call only where it waits for no other, and none is beside it."""
        return replace(self, allowed_ms=self.one_ms, others=())

    def after(self, spent_ms: int) -> "Terms":
        """Terms of a call that has used this part of its time already. One with too little left is
        admitted where hardly any wait: it is late anyway, and no overload."""
        if not spent_ms:
            return self
        least_ms = min(max(self.one_ms, _LATE_SHARE * self.allowed_ms), self.allowed_ms)
        left_ms = max(self.allowed_ms - spent_ms, least_ms)
        others = tuple([each.after(spent_ms) for each in self.others]) if self.others else ()
        return Terms(  # `replace` takes five times as long, at each call
            left_ms, self.one_ms, self.step_ms, self.full_rows, self.full_ms, self.slots, others
        )

    def cost_ms(self, rows: int) -> float:
        """Returns the time that it adds to the launches of its lane, where `rows` wait."""
        return self.step_ms if rows % self.full_rows else self.one_ms


@dataclass(frozen=True, slots=True)
class TenantShare:
    """Position of a tenant among those whose calls wait."""

    waiting: int  #: calls in all lanes
    own: int  #: calls of this tenant among them
    weight: float
    weights: float  #: sum over all waiting tenants, this one included

    @property
    def before(self) -> float:
        """Most calls that are launched before a new one of this tenant: tenants take turns."""
        return min(self.waiting, (self.own + 1) * self.weights / self.weight)

    def has_its_share(self, most: int) -> bool:
        """Returns True if it uses its fair share of a queue of `most` calls."""
        return self.own * self.weights >= most * self.weight


def mean_gap(before_ms: float, gap_ms: float) -> float:
    """Returns the mean distance of calls after one more, gap_ms after the one before.

    About the last fifty calls count, or the last second.
    """
    if before_ms == 0:
        return gap_ms
    return before_ms + (gap_ms - before_ms) * min(1.0, max(0.02, gap_ms / 1000))


@dataclass(frozen=True, slots=True)
class Rejection:
    """Rejection of a call."""

    why: RejectReason
    #: predicted wait for its launch, or for its quota; of a call that would be late, with the time
    #: that others add to its launch
    wait_ms: float = 0.0
    exceeded: Exceeded | None = None


@dataclass(frozen=True, slots=True)
class LaneState:
    """State of one lane."""

    lane: str  #: name
    rows: int  #: calls waiting
    units: int  #: sum of their sizes
    due_ms: float  #: time when the most urgent is due
    turn: float = 0.0  #: least virtual time of its tenants; the lane with the least goes first
    urgent: int = 0  #: more calls, which are due too soon for the slot that looked


@dataclass(frozen=True, slots=True)
class LanesState:
    """State of all lanes of a model at one moment of the lanes' own clock."""

    now_ms: float
    lanes: Sequence[LaneState]
    last_launch_ms: float  #: time of the pool's latest launch
    last_took_ms: float  #: its predicted duration
    called_ms: float  #: time of the latest call
    gap_ms: float  #: mean distance of calls; 0: not known
    watched_ms: float  #: time until which an idle slot waits for the calls that are here
    watcher: str  #: that slot
    replicas: int  #: ready workers
    busy: Mapping[str, float]  #: time until which each busy slot is predicted to be busy
    tiers: Tiers = ()  #: of the ready workers


Bulk = Literal["mixed", "apart", "none"]


@dataclass(frozen=True, slots=True)
class Ticket:
    """Decision to launch calls of a lane.

    Tenants take turns by what they were given in all lanes, in rows, or in units where device time
    goes by size, by weight; the most urgent call of a tenant goes first.
    """

    lane: str
    rows: int  #: most calls; 0: the slot launches something else
    units: int  #: most units of size in all; 0: no bound
    launched_before_ms: float  #: the take is void if the pool launched after this
    took_ms: float  #: predicted time of the launch
    needs_ms: float  #: a call with less time left than this is not worth taking
    reason: str  #: flush reason
    worker: str  #: taker
    slot: str  #: slot of the taker that launches them
    lease_ms: float  #: least time that the worker stays alive
    token: int = 0  #: tells this take from the worker's others
    sized: bool = False  #: True if tenants' turns count units, not rows
    offset_ms: float = 0.0  #: from the lanes' clock to the taker's: is added to the calls' times
    #: calls of tenants that have a good part of a launch waiting: like all others, in launches of
    #: their own, or none
    bulk: Bulk = "mixed"
    without: tuple[str, ...] = ()  #: tenants whose calls aren't taken
    least_ms: float = 0.0  #: calls that are due sooner are left to faster workers

    @property
    def holder(self) -> str:
        """Holder of the calls that it takes."""
        return f"{self.worker}#{self.token}"


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
        output_tokens: int = 0,
    ) -> Rejection | None:
        """Queues a call, due after the smaller of target and timeout, or returns why it can't.

        Reasons: no ready worker (the model is wanted for WANTED_MS), a quota that is used up,
        already `most` calls waiting and its tenant's share of them, or an answer that would come
        too late. Only an admitted call is charged to its quota. output_tokens: tokens that it may
        generate; the reply settles what was charged for them.
        """
        ...

    def look(self, slot: str, least_ms: Mapping[int, float] | None = None) -> LanesState:
        """Returns the state of the lanes; the slot that asks is not busy any more.

        least_ms: by bucket, time that the slot needs: it sees only calls that are due later; where
        there are others, a slot of the fastest tier is woken.
        """
        ...

    def take(self, ticket: Ticket) -> list[Call] | None:
        """Pops the calls of a ticket; returns None where the pool launched meanwhile.

        Calls that the launch would be too late for are answered with TOO_LATE.
        """
        ...

    def abort(self, worker: str, token: int = 0, *, alone: bool = False) -> None:
        """Puts back the calls of a take whose answer never reached its worker, or whose device
        failed; without a token all of a worker. alone: in lanes whose calls run alone."""
        ...

    def watch(self, slot: str, until_ms: float, rows: int) -> None:
        """Announces when an idle slot looks again.

        Until then no call adds a wake-up, but the one that makes `rows` in its lane.
        """
        ...

    def wait_for_wakeup(self, slot: str, timeout_s: float, tier: int = 0) -> None:
        """Blocks until there is a wake-up of its tier, this slot is notified, or the time is
        over."""
        ...

    def ring(self, tier: int) -> None:
        """Adds a wake-up of a tier, for a slot that took one of it but is of another."""
        ...

    def notify(self, slot: str) -> None:
        """Ends the wait of a slot, or of a worker, now or as soon as it waits."""
        ...

    def hold_prefixes(self, worker: str, slot: str, digests: Collection[str], held: bool) -> None:
        """Tells that calls which begin so (`prefix_digest`) should wake this slot first, or, where
        not held, any."""
        ...

    def drop(self, call: Call) -> None:
        """Forgets a call whose client disconnected, waiting or taken; `wait_for_dropped` tells the
        worker that has taken it."""
        ...

    def wait_for_dropped(self, worker: str, timeout_s: float) -> list[str]:
        """Blocks until calls that a worker took are dropped, it is notified, or the time is over.
        Returns their ids, each once."""
        ...

    def stream(self, progress: Sequence[Progress]) -> list[Call]:
        """Appends deltas to the logs of their calls, and sends those of calls that stream to the
        api processes that wait for them now: one message each.

        Returns the calls that their holder has no more: nothing is done for them. May be repeated:
        a delta is appended and sent once.
        """
        ...

    def logs(self, ids: Sequence[str]) -> list[CallLog]:
        """Returns the logs of calls, in order; empty ones of calls that have generated nothing."""
        ...

    def end(self, ends: Sequence[tuple[Call, Reply]]) -> None:
        """Ends calls that generate, as `reply` does, at the api processes that wait for them now.

        Nothing is sent or counted for a call that its holder has no more; of one that isn't known
        any more its tokens are counted, once. The reply to a stream is the last entry of its log,
        which is kept for KEPT_S. May be repeated.
        """
        ...

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        """Sends the replies of one launch to one api process, in one message.

        In the same step their calls are forgotten and, where they were known, counted. A call with
        tokens is counted once, known or not: what was generated before a client left is billed.
        """
        ...

    def usage(self, *, unfinished: bool = False) -> list[CallUsage]:
        """Returns the usage of calls in the minutes that are over, or in this one too."""
        ...

    def forget_usage(self, used: Sequence[CallUsage]) -> None:
        """Forgets usage that is recorded elsewhere."""
        ...

    def announce(
        self,
        worker: str,
        ttl_s: float,
        *,
        ready: bool = True,
        profile: bytes = b"",
        speed: Speed | None = None,
    ) -> None:
        """Marks a worker as alive for so long (0: no longer), and as ready for calls or not.

        profile: times of its launches (jobs/calls/profile.py); speed: how they compare with those
        of others, from which the tiers of the pool follow.
        """
        ...

    def profiles(self) -> list[bytes]:
        """Returns the profile of each tier of ready workers, as the latest of them announced it.

        Where all are alike it is one: the latest that any worker announced; none: none did.
        """
        ...

    def wanted(self) -> bool:
        """Returns True if a call found no ready worker within WANTED_MS, or waits without one."""
        ...

    def flushes(self) -> dict[str, int]:
        """Returns the launches with calls since Redis began, by flush reason."""
        ...

    def recover(self, given_up: Collection[str] = ()) -> int:
        """Recovers the calls of dead workers, and returns how many. given_up: holders of calls
        (`Call.holder`) whose engine died, as if their worker had.

        A call that generated since its worker died the last time goes back into its own lane, up to
        MOST_DEATHS times. Any other is put back at the first death, to run alone, and answered with
        WORKER_LOST at the second. Taken calls past their deadline are forgotten; on Redis those are
        dropped, too, whose api process died and that no client came back for. Any number of keepers
        may do so.
        """
        ...


def lane_name(params: Mapping[str, Any], bucket: int, cohort: str = "") -> str:
    """Returns the lane of a batch key (within its model version), a bucket and a cohort."""
    before = f"{cohort}:" if cohort else ""
    return f"{before}{orjson.dumps(params, option=orjson.OPT_SORT_KEYS).decode()}/{bucket}"


def lane_parts(lane: str) -> tuple[dict[str, Any], int]:
    """Returns the parameters and the bucket of a lane, also of one whose calls run alone, or are of
    a cohort."""
    params, _, bucket = lane[lane.index("{") :].rpartition("/")
    return orjson.loads(params), int(bucket)


def stays_on_demand(lane: str) -> bool:
    """Returns True for a lane that spot workers leave to others."""
    return lane.removeprefix(ALONE).startswith(ON_DEMAND)


def bucket_of(size: int, buckets: Sequence[int]) -> int:
    """Returns the upper end of a size's bucket; 0 where there are no buckets."""
    if not buckets:
        return 0
    return next((top for top in buckets if size <= top), buckets[-1])
