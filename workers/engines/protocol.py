"""What an engine is: the one thing between the scheduler and a device; and how it says no.

    InvalidInput    this input never works; from `prepare`
    Transient       it may work in a moment: tried again with backoff, as often as the model says
    └── RateLimited tried again no sooner than it says; costs none of the tries
    Permanent       it won't work again; what any other exception means as well, but for
                    ConnectionError and TimeoutError, which are transient

An engine sees inputs twice. `prepare` runs on CPU threads while the device is busy with another
launch (tokenizing, decoding, checking); `run` gets the prepared inputs of one launch and has the
device. Whatever `run` returns is turned to JSON by the recorder, off the device's thread.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


class InvalidInput(ValueError):
    """This input can't be served by this model; the message says what to mend."""


class Transient(Exception):
    """This may work in a moment."""


class RateLimited(Transient):
    """This may work after `retry_after_s` seconds."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Permanent(Exception):
    """This won't work, however often it is tried."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """One input, ready for the device.

    size: cost, in the unit of its `jobs.models.registry.Kind`; lanes and budgets go by it.
    data: what `run` takes.
    """

    size: int
    data: Any


@dataclass(frozen=True, slots=True)
class Metered:
    """An output, with the size that it turned out to have: what is told and billed in place of
    what `prepare` expected."""

    output: Any
    size: int


@dataclass(frozen=True, slots=True)
class Room:
    """launches: as many may be in flight now. closed_s: for so long nothing comes of any, and one
    that is begun anyway fails at once; 0: it is open."""

    launches: int
    closed_s: float = 0.0


class Engine(Protocol):
    """Runs launches. Created once per worker and model; `run` is called by one thread per launch
    in flight, `prepare` by any thread."""

    def prepare(
        self, inputs: Sequence[Any], params: Mapping[str, Any]
    ) -> list[Prepared | InvalidInput]:
        """One answer per input, in order. An input it refuses becomes an InvalidInput in its
        place; it raises only when nothing at all can be prepared."""
        ...

    def run(self, batch: Sequence[Any], params: Mapping[str, Any]) -> Sequence[Any]:
        """The outputs of one launch, one per entry of `batch` (the `data` of Prepared), in order:
        JSON-able values or numpy arrays, Metered or not, or an exception in place of what failed
        alone. May raise: the launch is then bisected, but for RateLimited, which holds for all of
        it."""
        ...

    def samples(self) -> Sequence[Any]:
        """Inputs over the range of sizes, few and cheap: a worker warms up with them and learns
        how long launches take; may be empty."""
        ...

    def memory_mb(self) -> float:
        """MiB of the device's memory that its weights hold; 0 where it holds none."""
        ...

    def close(self) -> None:
        """Frees them, once no launch is in flight; nothing runs after."""
        ...


@runtime_checkable
class Gated(Protocol):
    """An engine whose device isn't ours alone: how many launches it bears changes with time. Its
    items wait in their lanes, where they cost nothing and can be taken back."""

    def room(self) -> Room:
        """As it is now; asked before each launch is closed, so it must not block."""
        ...
