"""Slices that a worker has claimed, and the outcomes of their items as the device gives them."""

import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from jobs import clock
from jobs.models.inputs.generation import TokenUsage
from jobs.store.queue.checkpoints import Piece, Progress
from jobs.store.queue.claim import Lease
from jobs.telemetry.tracing.spans import NO_SPAN, Span

RECORD_AFTER_S = 1.0
"""Time for which outcomes of a slice that goes on wait to be recorded, s; twice that where the
slice is about to end."""


@dataclass(slots=True)  # a frozen one takes twice the time to make
class ItemOutcome:
    """Outcome of one item, or of one input of an item that is a list."""

    seq: int
    size: int  #: in the engine's unit
    wait_ms: float  #: time in the lane
    launch_id: int | None  #: None for an input that was rejected before any launch
    output: Any  #: the engine's output, or the exception that the item failed with
    device_us: int = 0  #: share of the launch's device time
    part: int = 0  #: position in the list that the input belongs to
    tokens: TokenUsage | None = None  #: billed tokens, of a model that generates
    truncated: int = 0  #: tokens of the text that were cut away


@dataclass(slots=True, eq=False)
class InFlightSlice:
    """One leased slice in this worker, from its claim until it is settled."""

    lease: Lease
    batch: "ClaimedBatch"  #: all slices of the same claim
    outcomes: list[ItemOutcome] = field(default_factory=list)  #: those that are not recorded
    failures: dict[int, list[Any]] = field(default_factory=dict)  #: earlier errors by seq
    lists: dict[int, int] = field(default_factory=dict)  #: inputs of each list, by its seq
    pending: int = -1  #: inputs without an outcome; below 0 until the slice has been read
    #: output so far of items that are being generated, by seq: they go on from it
    checkpoints: dict[int, Progress] = field(default_factory=dict)
    #: output since the last checkpoint, of items that were released
    progress: list[Piece] = field(default_factory=list)
    suspect: bool = False  #: True if it may have made the device fail: it is not settled
    released: bool = False  #: True once items that have not been launched go back to the queue
    finished: bool = False
    finished_s: float = 0.0  #: monotonic
    span: Span = NO_SPAN  #: span of the slice, where its job is traced

    def expect(self, items: int) -> None:
        """Sets the number of items that the slice waits for."""
        self.batch.update(self, [], -1 - items)

    def expect_parts(self, seq: int, parts: int) -> None:
        """Waits for so many inputs in place of an item that is a list."""
        self.lists[seq] = parts
        self.batch.update(self, [], 1 - parts)

    def add(self, outcomes: Sequence[ItemOutcome]) -> None:
        """Adds outcomes of inputs, in any order, from any thread."""
        self.batch.update(self, outcomes, len(outcomes))

    def withdraw(self, inputs: int) -> None:
        """Stops waiting for inputs that were taken out of the lanes."""
        self.batch.update(self, [], inputs)


class ClaimedBatch:
    """Slices of one claim. The thread that claimed them waits here, and settles what finished."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        self.slices = [InFlightSlice(lease, self) for lease in leases]
        self._open = len(self.slices)
        self._finished: list[InFlightSlice] = []
        self._unrecorded: dict[InFlightSlice, float] = {}  # go on; since when, monotonic s
        self._changed = threading.Condition()

    @property
    def ended(self) -> bool:
        """True once `wait` has returned every slice."""
        return not self._open

    def update(
        self, in_flight: InFlightSlice, outcomes: Sequence[ItemOutcome], inputs: int
    ) -> None:
        """Adds outcomes to a slice that waits for so many inputs less from now on."""
        self.update_all([(in_flight, outcomes, inputs)])

    def update_all(
        self, changes: Iterable[tuple[InFlightSlice, Sequence[ItemOutcome], int]]
    ) -> None:
        """Makes changes such as `update` makes at once: slices that finish by them are settled in
        one transaction."""
        now_s = clock.monotonic()
        with self._changed:
            before = len(self._finished)
            for in_flight, outcomes, inputs in changes:
                in_flight.outcomes += outcomes
                in_flight.pending -= inputs
                if in_flight.pending == 0 and not in_flight.finished:
                    in_flight.finished, in_flight.finished_s = True, now_s
                    self._finished.append(in_flight)
                    self._unrecorded.pop(in_flight, None)
                elif outcomes and not (in_flight.finished or in_flight in self._unrecorded):
                    self._unrecorded[in_flight] = now_s
            if len(self._finished) > before:
                self._changed.notify()

    def wait(self, most_s: float = inf) -> list[InFlightSlice] | None:
        """Blocks until slices finish, and returns those that did since the last call. Returns an
        empty list where outcomes of others are due to be recorded, or once it has ended; None
        where nothing of that came within `most_s`."""
        until_s = clock.monotonic() + most_s
        with self._changed:
            while self._open and not self._finished:
                left_s = self._record_in_s()
                if left_s <= 0:
                    break
                if (most_s := until_s - clock.monotonic()) <= 0:
                    return None
                self._changed.wait(min(left_s, most_s))
            finished, self._finished = self._finished, []
            self._open -= len(finished)
            return finished

    def _record_in_s(self) -> float:
        """Returns the seconds until outcomes of slices that go on are to be recorded: nobody wakes
        the thread that waits when the first of them comes, so it looks again in time."""
        now_s = clock.monotonic()
        return min(
            (
                since_s + RECORD_AFTER_S * (1 if one.pending > len(one.outcomes) else 2) - now_s
                for one, since_s in self._unrecorded.items()
            ),
            default=RECORD_AFTER_S,
        )

    def take_outcomes(self) -> Mapping[InFlightSlice, InFlightSlice]:
        """Takes the outcomes of slices that go on; returns copies of these slices that hold them.
        A list stays until all of its inputs have ended."""
        with self._changed:
            parts = {one: replace(one, outcomes=_take(one)) for one in self._unrecorded}
            self._unrecorded.clear()
            return parts

    def put_back(self, parts: Mapping[InFlightSlice, InFlightSlice]) -> None:
        """Gives slices outcomes back that could not be recorded."""
        for in_flight, part in parts.items():
            self.update(in_flight, part.outcomes, 0)


def end_together(ended: Sequence[tuple[InFlightSlice, ItemOutcome]]) -> None:
    """Adds outcomes to their slices, those of one claim at once, from any thread."""
    by_slice: dict[InFlightSlice, list[ItemOutcome]] = {}
    for in_flight, outcome in ended:
        by_slice.setdefault(in_flight, []).append(outcome)
    by_batch: dict[ClaimedBatch, list[tuple[InFlightSlice, Sequence[ItemOutcome], int]]] = {}
    for in_flight, outcomes in by_slice.items():
        change = in_flight, outcomes, len(outcomes)
        by_batch.setdefault(in_flight.batch, []).append(change)
    for batch, changes in by_batch.items():
        batch.update_all(changes)


def _take(in_flight: InFlightSlice) -> list[ItemOutcome]:
    """Removes and returns the outcomes of a slice, except those of lists that are not complete."""
    outcomes, lists = in_flight.outcomes, in_flight.lists
    in_flight.outcomes = []
    if lists:
        ended = Counter(one.seq for one in outcomes)
        in_flight.outcomes = [one for one in outcomes if ended[one.seq] < lists.get(one.seq, 0)]
        outcomes = [one for one in outcomes if ended[one.seq] >= lists.get(one.seq, 0)]
    return outcomes
