"""Length of a benchmark: in full, or a short trial."""

from dataclasses import dataclass


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


FULL, QUICK = Scale(3, 1.0), Scale(1, 0.25)
