"""Length of a benchmark: in full, or a short trial."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

K = TypeVar("K")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Scale:
    """Rounds and durations of a run."""

    rounds: int  #: times that each side is measured, in turn
    share: float  #: factor of all durations

    @property
    def quick(self) -> bool:
        """True for a trial, whose figures are too few to count."""
        return self.rounds == 1

    def seconds(self, full: float) -> float:
        """Duration (or size) at this scale."""
        return full * self.share

    def in_turn(self, sides: Mapping[K, Callable[[int], T]]) -> dict[K, list[T]]:
        """Measures all sides in each round: a slow minute of the machine slows all of them.

        They take the number of the round.
        """
        found: dict[K, list[T]] = {name: [] for name in sides}
        for number in range(self.rounds):
            for name, measure in sides.items():
                found[name].append(measure(number))
        return found


FULL, QUICK = Scale(3, 1.0), Scale(1, 0.25)
