"""How much a benchmark of calls does: in full, or a look at whether it works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """rounds: of all sides, in turn; share: of the seconds of each part."""

    rounds: int
    share: float

    @property
    def quick(self) -> bool:
        return self.rounds == 1

    def seconds(self, full: float) -> float:
        return full * self.share


FULL, QUICK = Scale(3, 1.0), Scale(1, 0.25)
