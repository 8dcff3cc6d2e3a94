"""Protocol of engines, which run launches for the scheduler, and the errors that they raise.

    InvalidInput    the input never works; from `prepare`
    Transient       tried again with backoff, as often as the model's entry says
    └── RateLimited tried again no sooner than it says; doesn't count as a try
    Permanent       not tried again
    DeviceFailed    the device doesn't work: its worker is taken out of service, and what it had
                    goes back

ConnectionError and TimeoutError mean Transient; any other exception means Permanent.

An engine sees inputs twice. `prepare` runs on CPU threads while the device is busy with another
launch (tokenizing, decoding, checking); `run` gets the prepared inputs of one launch and has the
device. Its outputs are serialized to JSON off the device's thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from jobs.models.adapters import Adapter
from workers.engines.adapters.slots import Slots

Params: TypeAlias = Mapping[str, Any]
"""Parameters that all entries of a launch have in common."""


class InvalidInput(ValueError):
    """Raised or returned where the model can't serve an input; the message says what to mend."""


class Transient(Exception):
    """Raised or returned where another try may work in a moment."""


class RateLimited(Transient):
    """Raised or returned where another try may work after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Permanent(Exception):
    """Raised or returned where no other try would work."""


class DeviceFailed(Exception):
    """Raised or returned where the device doesn't work, whatever the inputs.

    by_input: the device reports that a kernel rejected what it was given.
    """

    def __init__(self, message: str, *, by_input: bool = False) -> None:
        super().__init__(message)
        self.by_input = by_input


@dataclass(frozen=True, slots=True)
class Prepared:
    """Input that is ready for the device."""

    size: int  #: cost in the unit of its `EngineKind`; lanes and budgets go by it
    data: Any  #: what `run` takes
    truncated: int = 0  #: tokens of the text that were cut away


@dataclass(frozen=True, slots=True)
class Metered:
    """Output with its measured size, which is reported and billed in place of the prepared one."""

    output: Any
    size: int  #: in the unit of the model


@dataclass(frozen=True, slots=True)
class Room:
    """Launches that a gated engine accepts; of a generator: sequences."""

    launches: int  #: that may be in flight now
    closed_s: float = 0.0  #: for which every launch would fail at once; 0: open
    items: int | None = None  #: up to which a generator is filled with items; None: `launches`


@dataclass(frozen=True, slots=True)
class Adapted:
    """Prepared input with its adapter."""

    data: Any  #: of `Prepared`
    adapter: Any  #: what the engine made of it


PreparedInputs: TypeAlias = list[Prepared | InvalidInput]
"""What `prepare` returns: one entry per input, in order."""


class Preparer(Protocol):
    """Prepares inputs of one model, as its engine does; for workers that do nothing else. What it
    returns is sent to another worker: data are JSON values, bytes, tuples and numpy arrays
    (`workers/preparation/wire.py`). Methods are called by any thread."""

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Returns one Prepared or InvalidInput per input, in order: what `Engine.prepare` returns.
        An input that was fetched from an address comes as bytes."""
        ...

    def samples(self) -> Sequence[Any]:
        """Returns inputs over the range of sizes, few and cheap, possibly none."""
        return ()

    def close(self) -> None:
        """Frees what it holds, as the last method."""
        return


class Engine(Protocol):
    """Runs launches of one model in one worker. `run` is called by one thread per launch in flight,
    `prepare` by any thread."""

    def prepare(self, inputs: Sequence[Any], params: Params) -> PreparedInputs:
        """Returns one Prepared or InvalidInput per input, in order. Raises only where nothing can
        be prepared."""
        ...

    def run(self, batch: Sequence[Any], params: Params) -> Sequence[Any]:
        """Runs one launch on the device.

        `batch` holds the `data` of each Prepared. Returns one output per entry, in order: a JSON
        value or numpy array, possibly Metered, or an exception for an entry that failed alone. May
        raise: the launch is then bisected, except for RateLimited, which holds for the whole
        launch.
        """
        ...

    def samples(self) -> Sequence[Any]:
        """Returns inputs over the range of sizes, few and cheap, possibly none: a worker warms up
        with them and measures launches."""
        return ()

    def probe(self) -> None:
        """Raises DeviceFailed where a known input has another output than it must have. Called once
        the model is warm, when a launch failed as a whole, and between launches once a minute."""

    def memory_mb(self) -> float:
        """Returns the device memory that the weights hold, MiB; 0 if none."""
        return 0.0

    def close(self) -> None:
        """Frees the weights; called once no launch is in flight, as the last method."""


@runtime_checkable
class Gated(Protocol):
    """Engine on a shared device or service: the launches that it accepts change with time. Its
    items wait in their lanes, where they can be taken back."""

    def room(self) -> Room:
        """Returns the room of this moment without blocking; called before each launch is closed."""
        ...


@runtime_checkable
class AdaptingEngine(Protocol):
    """Engine whose inputs may have adapters: `run` gets such an input's data as `Adapted`, and
    inputs of any adapters share a launch. Methods are for any thread."""

    @property
    def held_adapters(self) -> Slots:
        """Slots of the adapters that it holds."""
        ...

    def loaded_adapter(self, adapter: Adapter) -> Any | None:
        """Returns an adapter if it is loaded, without blocking."""
        ...

    def load_adapter(self, adapter: Adapter) -> Any:
        """Returns an adapter, which is loaded first where it isn't. Raises Permanent where it is
        broken, Transient where its files can't be reached."""
        ...
