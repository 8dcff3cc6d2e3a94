"""The slices that a worker has in hand, and how the device tells their claimant of their ends."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from jobs import clock
from jobs.store.queue.claim import Lease
from jobs.telemetry.tracing.spans import NO_SPAN, Span


@dataclass(frozen=True, slots=True)
class Ended:
    """One item's end, or that of one input of a list (part: its place there): its output, or the
    exception that it failed with. device_us: its share of the launch."""

    seq: int
    size: int
    wait_ms: float
    launch_id: int | None
    output: Any
    device_us: int = 0
    part: int = 0


@dataclass(slots=True, eq=False)
class InFlightSlice:
    """One slice in hand. left: its inputs that have not ended, -1 while it is being read;
    released: what has not been launched goes back; failures: what items failed with before; lists:
    of the items that are lists, how many inputs each stands for; ended_s: when the last did; span:
    its own, of a job that is traced."""

    lease: Lease
    claimed: "ClaimedBatch"
    ended: list[Ended] = field(default_factory=list)
    failures: dict[int, list[Any]] = field(default_factory=dict)
    lists: dict[int, int] = field(default_factory=dict)
    left: int = -1
    released: bool = False
    finished: bool = False
    ended_s: float = 0.0
    span: Span = NO_SPAN

    def expect(self, items: int) -> None:
        """So many items will end."""
        self.claimed.account(self, [], -1 - items)

    def expect_parts(self, seq: int, parts: int) -> None:
        """An item turned out to be a list: so many inputs will end in its place."""
        self.lists[seq] = parts
        self.claimed.account(self, [], 1 - parts)

    def end(self, ended: Sequence[Ended]) -> None:
        """The ends of some inputs, in any order, from any thread."""
        self.claimed.account(self, ended, len(ended))

    def forget(self, inputs: int) -> None:
        """So many inputs were taken out of the lanes: they won't end here."""
        self.claimed.account(self, [], inputs)


class ClaimedBatch:
    """The slices of one claim. Whoever claimed them waits here, and settles what finished."""

    def __init__(self, leases: Sequence[Lease]) -> None:
        self.holdings = [InFlightSlice(lease, self) for lease in leases]
        self._open = len(self.holdings)
        self._finished: list[InFlightSlice] = []
        self._changed = threading.Condition()

    def account(self, holding: InFlightSlice, ended: Sequence[Ended], inputs: int) -> None:
        with self._changed:
            holding.ended += ended
            holding.left -= inputs
            if holding.left == 0 and not holding.finished:
                holding.finished, holding.ended_s = True, clock.monotonic()
                self._finished.append(holding)
                self._changed.notify()

    def wait(self) -> list[InFlightSlice]:
        """Blocks until slices finished; returns all that did since the last time, and an empty
        list once every slice has been returned."""
        with self._changed:
            self._changed.wait_for(lambda: self._finished or not self._open)
            finished, self._finished = self._finished, []
            self._open -= len(finished)
            return finished
