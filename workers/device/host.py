"""Protocol of whatever serves a model in a worker: `ModelHost` batches items and calls into
launches; other kinds of models may be served otherwise."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from jobs.calls.profile import Profile
from jobs.models.adapters import Adapter
from jobs.models.model import Model
from workers.device.claim_capacity import ClaimCapacity
from workers.device.warmup.measure import Measured
from workers.engines.generator import Generator
from workers.engines.protocol import Engine
from workers.items.in_flight import InFlightSlice
from workers.scheduler.entries import Launch


class ClaimHost(Protocol):
    """Host, or one adapter of it, as far as slices concern it. Methods are for any thread."""

    model: Model
    capacity: ClaimCapacity  #: room for claims of slices

    @property
    def submit(self) -> Callable[..., None]:
        """Method that queues inputs of slices: see `Host.submit`."""
        ...

    def release(self, in_flight: InFlightSlice) -> None:
        """Takes back the items of a slice that have not been launched."""
        ...

    def drain(self) -> None:
        """Launches what waits without delay, and offers no room any more."""
        ...


class Host(Protocol):
    """One model in one worker. Methods are for any thread."""

    model: Model
    capacity: ClaimCapacity  #: room for claims of slices
    adapters: dict[str, Adapter]  #: declared for it, by own name; they only become more
    load_s: float  #: seconds that loading and warm-up took
    used_s: float  #: when it last launched something, monotonic

    @property
    def engine(self) -> Engine | Generator:
        """Engine that it serves the model with."""
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
        owners: Sequence[InFlightSlice],
        seqs: Sequence[int],
        inputs: Sequence[Any],
        params: Mapping[str, Any],
        parts: Sequence[int] = (),
        adapter: Adapter | None = None,
    ) -> None:
        """Queues inputs of slices, which get an outcome for each. owners: slice of each input;
        parts: positions of inputs in the lists that they belong to; empty where no item is a list;
        adapter: of the model, for all of them.
        """
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

    def warm_up(self, known: Measured | None = None) -> Measured:
        """Runs launches of the engine's samples, and returns their times; known: those of an
        earlier load. Raises DeviceFailed."""
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
