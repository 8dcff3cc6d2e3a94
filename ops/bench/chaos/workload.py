"""Items of a job: a function of its tag, so that nothing has to be stored to check them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, log
from random import Random

MOST_ITEMS = 20_000
_MOODY_ITEMS = 2000
_POISONED = 0.1  # share of the moody jobs with an item that kills workers until it is alone
_SHARES = {"echo": 0.3, "shout": 0.5, "moody": 0.2}


@dataclass(frozen=True, slots=True)
class Work:
    """Items of one job."""

    tag: str
    model: str
    total: int
    marks: Mapping[int, str] = field(default_factory=dict)  #: seq -> how that item fails

    def text(self, seq: int) -> str:
        """Input of an item."""
        mark = self.marks.get(seq)
        return f"{self.tag} é {seq}" + (f"!{mark}" if mark else "")

    def texts(self) -> Iterator[str]:
        """Inputs of all items."""
        return map(self.text, range(self.total))

    def expected(self, seq: int) -> tuple[str, str]:
        """Returns (outcome, output or error code) as a plain loop computes them."""
        match self.marks.get(seq):
            case "raise":
                return "failed", "engine_error"
            case "exit" | "segfault":
                return "failed", "worker_lost"
        text = self.text(seq)
        return "succeeded", text if self.model == "echo" else text.upper()


def invent(tag: str, dice: Random) -> Work:
    """Random work of 1 to 20,000 items (log-uniform), sometimes with items that fail."""
    model = dice.choices(list(_SHARES), list(_SHARES.values()))[0]
    most = _MOODY_ITEMS if model == "moody" else MOST_ITEMS
    total = min(most, int(exp(dice.uniform(0, log(most + 1)))))
    return Work(tag, model, total, _marks(total, dice) if model == "moody" else {})


def _marks(total: int, dice: Random) -> dict[int, str]:
    marks = dict.fromkeys(_some(total, 3, dice), "raise")
    marks |= dict.fromkeys(_some(total, 5, dice), "flaky")
    if dice.random() < _POISONED:
        marks[dice.randrange(total)] = dice.choice(["exit", "segfault"])
    return marks


def _some(total: int, most: int, dice: Random) -> list[int]:
    return [dice.randrange(total) for _ in range(dice.randint(0, most))]
