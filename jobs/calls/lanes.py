"""The lanes of one model version: what every implementation does.

A lane's name is its batch key's parameters and its bucket ("normalize=false/64"). Two
implementations, in Redis and in memory, pass one conformance suite.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import orjson

from jobs.calls.messages import Call, Reply

Refusal = Literal["no_worker", "overloaded"]

ALONE = "alone:"
"""Before the name of a lane whose calls were in the hands of a worker that died: each is launched
by itself, since it may be the reason, and not once more after that."""

WORKER_LOST = ("worker_lost", "two workers died while they had this call in hand")
"""What a call is answered with after its second death."""


@dataclass(frozen=True, slots=True)
class LaneLook:
    """One lane as it stands: its name, calls waiting, and when the most urgent is due."""

    lane: str
    rows: int
    due_ms: float


@dataclass(frozen=True, slots=True)
class Look:
    """All lanes of a model at one moment of the lanes' own clock.

    last_launch_ms, last_took_ms: when the pool's latest launch with calls left, and how long it
    was predicted to take; replicas: ready workers.
    """

    now_ms: float
    lanes: Sequence[LaneLook]
    last_launch_ms: float
    last_took_ms: float
    replicas: int


@dataclass(frozen=True, slots=True)
class Ticket:
    """A finished decision: take up to `rows` calls of this lane, the most urgent first, unless
    the pool launched after `launched_before_ms`. took_ms: the predicted time of this launch;
    worker: who takes them, and will be there for at least `lease_ms`."""

    lane: str
    rows: int
    launched_before_ms: float
    took_ms: float
    worker: str
    lease_ms: float


class CallLanes(Protocol):
    """The lanes of one model version."""

    def put(self, call: Call, *, target_ms: int, timeout_ms: int, most: int) -> Refusal | None:
        """Queues a call, due after the smaller of target and timeout; says why where it can't:
        no ready worker, or already `most` calls waiting."""
        ...

    def look(self) -> Look: ...

    def take(self, ticket: Ticket) -> list[Call]:
        """Pops what the ticket names, to be answered by its worker; calls past their deadline are
        dropped on the way."""
        ...

    def drop(self, call: Call) -> None:
        """Forgets a call whose client went away, waiting or taken."""
        ...

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        """Sends the replies of one launch to one api process, in one message; their calls are
        forgotten in the same step."""
        ...

    def announce(self, worker: str, ttl_s: float, *, ready: bool = True) -> None:
        """This worker is there for so long (0: no longer), and is ready for calls or not."""
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
