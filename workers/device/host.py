"""Protocol of whatever serves a model in a worker: `ModelHost` batches items and calls into
launches; other kinds of models may be served otherwise."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from jobs.calls.profile import Profile
from jobs.models.model import Model
from workers.engines.protocol import Engine
from workers.items.in_flight import InFlightSlice
from workers.scheduler.entries import Launch


class Capacity(Protocol):
    """Room of one host for claims of slices."""

    max_claims: int  #: claims in flight at a time, less where several models share the threads

    def room(self) -> int:
        """Returns the number of inputs that may be claimed now."""
        ...

    def preemptive_room(self) -> int:
        """Returns the number of inputs that under-served tenants may claim now, on top of those in
        flight."""
        ...

    def item_ms(self) -> float:
        """Returns the predicted device time of one item, ms."""
        ...

    def next_launch_end(self) -> tuple[float, float]:
        """Returns seconds until the first launch in flight ends, and its duration; predicted."""
        ...

    def has_claims(self) -> bool:
        """Returns True while any claim is in flight."""
        ...

    def begin_claim(self, *, isolated: bool = False) -> None:
        """Counts a claim, until `end_claim`. isolated: no call shares a launch with its items."""
        ...

    def end_claim(self) -> None:
        """Ends a claim once all its slices have been settled."""
        ...

    def add_inputs(self, count: int) -> None:
        """Counts inputs that were claimed; a negative number: that were settled."""
        ...

    def check_backpressure(self) -> bool:
        """Returns True if calls keep the device from items. Called once a heartbeat."""
        ...


class Host(Protocol):
    """One model in one worker. Methods are for any thread."""

    model: Model
    engine: Engine
    load_s: float  #: seconds that loading and warm-up took
    used_s: float  #: when it last launched something, monotonic

    @property
    def capacity(self) -> Capacity:
        """Room for claims."""
        ...

    @property
    def draining(self) -> bool:
        """True once `drain` was called."""
        ...

    @property
    def lanes_waiting(self) -> int:
        """Number of lanes with something in them."""
        ...

    def submit(
        self,
        in_flight: InFlightSlice,
        seqs: Sequence[int],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        parts: Sequence[int] = (),
    ) -> None:
        """Queues inputs of one slice, which gets an outcome for each. parts: positions of inputs in
        the lists that they belong to; empty where no item is a list."""
        ...

    def release(self, in_flight: InFlightSlice) -> None:
        """Takes back the items of a slice that have not been launched."""
        ...

    def launches(self) -> list[Launch]:
        """Returns the launches in flight."""
        ...

    def slots(self) -> int:
        """Returns the number of launches that may be in flight now."""
        ...

    def profile(self) -> Profile:
        """Returns how long launches take."""
        ...

    def announce(self, *, ready: bool = True, alive: bool = True) -> None:
        """Tells Redis that this worker serves the model, and whether it takes calls."""
        ...

    def warm_up(self) -> None:
        """Runs and measures launches of the engine's samples."""
        ...

    def start(self) -> None:
        """Starts to take calls and items."""
        ...

    def drain(self) -> None:
        """Launches what waits without delay, and offers no room any more."""
        ...

    def stop(self) -> None:
        """Returns once the launches in flight have ended and their calls are answered."""
        ...
