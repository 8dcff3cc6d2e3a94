"""Room for claims of one model: how much work a worker takes from the queue at a time."""

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from jobs import clock
from jobs.models.model import Limits
from workers.device.backpressure import Backpressure
from workers.engines.protocol import Gated, Room

_SLICES_AHEAD = 2  # of a slow model: one runs, one waits
_TOO_LONG = 4  # times a slice's inputs
CLAIMS_IN_FLIGHT = 4  # one claim's items run, one's wait, one's are fetched, one's are settled
PREEMPTIVE_CLAIMS = 2  # on top of them, for under-served tenants


class ClaimSizes(Protocol):
    """Sizes of claims, as a scheduler predicts them; under the lock of its host."""

    def item_ms(self) -> float:
        """Returns the device time of an item in a full launch, ms."""
        ...

    def slice_items(self, launches: int) -> int:
        """Returns the most items of a slice, for so many launches at a time."""
        ...

    def claim_items(self) -> int:
        """Returns the items that a claim has, if a slice has fewer; 0: one slice is enough."""
        ...


class ClaimCapacity:
    """Claims in flight of one model, and the room for more; guarded by the lock of its host.

    slots: names of the launches that may be in flight at a time; gate: an engine that says how many
    may be now; waiting: counts inputs of items in the lanes."""

    def __init__(
        self,
        limits: Limits,
        slots: Iterable[str],
        gate: Gated | None,
        sizes: ClaimSizes,
        waiting: Callable[[], int],
        lock: threading.Condition,
    ) -> None:
        self.max_claims = CLAIMS_IN_FLIGHT
        self.backpressure = Backpressure()
        self.draining = False
        self.leaves_items = False  # to cheaper workers
        self.suspended = False  #: nothing is claimed for now: what follows has enough to do
        self.isolated = False  # the claim in flight is of a suspect: calls share no launch with it
        #: By slot: when its latest launch ends (monotonic s), and its duration (s), both predicted.
        self.launch_ends = dict.fromkeys(slots, (0.0, 0.0))
        self._limits, self._gate, self._lock = limits, gate, lock
        self._sizes, self.waiting = sizes, waiting
        self._inputs = self._claims = 0

    def launch_room(self) -> Room:
        """Returns the number of launches that the device takes now."""
        return self._gate.room() if self._gate else Room(self._limits.in_flight)

    def sharing_launches(self, room: Room) -> int:
        """Returns the number of launches that share the device's time: 1 for a device of ours."""
        return max(1, room.launches) if self._gate else 1

    def room(self) -> int:
        """Returns the number of inputs that may be claimed now."""
        launches = self.launch_room()
        if launches.closed_s or self.leaves_items or self.suspended:
            return 0
        with self._lock:
            most = self._sizes.slice_items(max(1, launches.launches))
            slow = most < self._limits.slice_items and not self._gate
            if not slow:  # several slices, where a launch takes them
                most = max(most, self._sizes.claim_items())
            left = (_SLICES_AHEAD if slow else CLAIMS_IN_FLIGHT) * most - self._inputs
            if self.backpressure.active:
                return 0 if self.draining or self._claims else 1  # room for one slice
            closed = self.draining or self._claims >= self.max_claims
            if closed or (slow and 2 * left < most):  # parts that are too small cost more
                return 0
            return max(0, min(most, left))

    def slice_items(self) -> int:
        """Returns the most inputs that a slice should have in this worker now."""
        launches = self.launch_room()
        with self._lock:
            return self._sizes.slice_items(max(1, launches.launches))

    def takes_too_long(self, inputs: int) -> bool:
        """Returns True if inputs of one slice take so long that other workers should have some."""
        if inputs <= _TOO_LONG:
            return False
        return inputs > _TOO_LONG * self.slice_items()

    def preemptive_room(self) -> int:
        """Returns the number of inputs that under-served tenants may claim now, on top of those in
        flight."""
        launches = self.launch_room()
        if launches.closed_s or self.leaves_items or self.suspended:
            return 0
        with self._lock:
            closed = self.draining or self.isolated or self.backpressure.active or not self._claims
            if closed or self._claims >= self.max_claims + PREEMPTIVE_CLAIMS:
                return 0
            return min(self._limits.most_rows, self._sizes.slice_items(max(1, launches.launches)))

    def next_launch_end(self) -> tuple[float, float]:
        """Returns seconds until the first launch in flight ends, and its duration; predicted."""
        end_s, duration_s = min(self.launch_ends.values())
        return max(0.0, end_s - clock.monotonic()), duration_s

    def item_ms(self) -> float:
        """Returns the predicted device time of one item in a full launch, ms."""
        with self._lock:
            return self._sizes.item_ms() / self.sharing_launches(self.launch_room())

    def check_backpressure(self) -> bool:
        """Returns True if calls keep the device from items. Called once a heartbeat."""
        with self._lock:
            return self.backpressure.update(self.waiting())

    def has_claims(self) -> bool:
        """Returns True while any claim is in flight."""
        with self._lock:
            return self._claims > 0

    def begin_claim(self, *, isolated: bool = False) -> None:
        """Counts a claim, until `end_claim`. isolated: no call shares a launch with its items."""
        with self._lock:
            self._claims += 1
            self.isolated = isolated

    def end_claim(self) -> None:
        """Ends a claim once all its slices have been settled."""
        with self._lock:
            self._claims -= 1

    def add_inputs(self, count: int) -> None:
        """Counts inputs that were claimed; a negative number: that were settled."""
        with self._lock:
            self._inputs += count
