"""Slices that a worker has claimed, and the outcomes of their items as the device gives them."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs import clock
from jobs.store.queue.claim import Lease
from jobs.telemetry.tracing.spans import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class ItemOutcome:
    """Outcome of one item, or of one input of an item that is a list."""

    seq: int
    size: int  #: in the engine's unit
    wait_ms: float  #: time in the lane
    launch_id: int | None  #: None for an input that was rejected before any launch
    output: Any  #: the engine's output, or the exception that the item failed with
    device_us: int = 0  #: share of the launch's device time
    part: int = 0  #: position in the list that the input belongs to


@dataclass(slots=True, eq=False)
class InFlightSlice:
    """One leased slice in this worker, from its claim until it is settled."""

    lease: Lease
    batch: "ClaimedBatch"  #: all slices of the same claim
    outcomes: list[ItemOutcome] = field(default_factory=list)
    failures: dict[int, list[Any]] = field(default_factory=dict)  #: earlier errors by seq
    lists: dict[int, int] = field(default_factory=dict)  #: inputs of each list, by its seq
    pending: int = -1  #: inputs without an outcome; below 0 until the slice has been read
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
        self._changed = threading.Condition()

    def update(
        self, in_flight: InFlightSlice, outcomes: Sequence[ItemOutcome], inputs: int
    ) -> None:
        """Adds outcomes to a slice that waits for so many inputs less from now on."""
        with self._changed:
            in_flight.outcomes += outcomes
            in_flight.pending -= inputs
            if in_flight.pending == 0 and not in_flight.finished:
                in_flight.finished, in_flight.finished_s = True, clock.monotonic()
                self._finished.append(in_flight)
                self._changed.notify()

    def wait(self) -> list[InFlightSlice]:
        """Blocks until slices finish; returns those that did since the last call, and an empty
        list once every slice has been returned."""
        with self._changed:
            self._changed.wait_for(lambda: self._finished or not self._open)
            finished, self._finished = self._finished, []
            self._open -= len(finished)
            return finished
