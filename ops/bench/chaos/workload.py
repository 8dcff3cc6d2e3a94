"""What a job consists of: a function of its tag, so that nothing has to be kept to check it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import exp, log
from random import Random

from workers.engines import protocol

MOST_ITEMS = 20_000
MODELS = """
[[model]]
name = "echo"
version = "1"
engine = "echo"
limits = { max_batch = 200, window_ms = 5, slice_items = 500 }
price = { per_item = 0.1, per_1k_units = 0.3, per_device_s = 7 }

[[model]]
name = "shout"
version = "1"
engine = "function"
options = { function = "ops.bench.chaos.faults.functions:shout" }
limits = { max_batch = 50, slice_items = 500 }
price = { per_item = 0.01 }

[[model]]
name = "moody"
version = "1"
engine = "function"
options = { function = "ops.bench.chaos.faults.functions:moody" }
limits = { max_batch = 16, slice_items = 64 }
"""

RETRIES = hasattr(protocol, "Transient")
"""Whether workers retry what is transient, and isolate what kills them."""

_MOODY_ITEMS = 2000
_POISONED = 0.1  # of the moody jobs: each kills workers until it is alone
_SHARES = {"echo": 0.3, "shout": 0.5, "moody": 0.2}


@dataclass(frozen=True, slots=True)
class Work:
    """marks: seq -> how that item misbehaves."""

    tag: str
    model: str
    total: int
    marks: Mapping[int, str] = field(default_factory=dict)

    def text(self, seq: int) -> str:
        mark = self.marks.get(seq)
        return f"{self.tag} é {seq}" + (f"!{mark}" if mark else "")

    def texts(self) -> Iterator[str]:
        return map(self.text, range(self.total))

    def expected(self, seq: int) -> tuple[str, str]:
        """(outcome, output or code of the error): what a plain loop over the items makes of it."""
        match self.marks.get(seq):
            case "raise":
                return "failed", "engine_error"
            case "exit" | "segfault":
                return "failed", "worker_lost"
        text = self.text(seq)
        return "succeeded", text if self.model == "echo" else text.upper()


def invent(tag: str, dice: Random) -> Work:
    """Log-uniform from 1 to 20,000 items; now and then some that misbehave."""
    model = dice.choices(list(_SHARES), list(_SHARES.values()))[0]
    most = _MOODY_ITEMS if model == "moody" else MOST_ITEMS
    total = min(most, int(exp(dice.uniform(0, log(most + 1)))))
    return Work(tag, model, total, _marks(total, dice) if model == "moody" else {})


def _marks(total: int, dice: Random) -> dict[int, str]:
    marks = dict.fromkeys(_some(total, 3, dice), "raise")
    if RETRIES:
        marks |= dict.fromkeys(_some(total, 5, dice), "flaky")
        if dice.random() < _POISONED:
            marks[dice.randrange(total)] = dice.choice(["exit", "segfault"])
    return marks


def _some(total: int, most: int, dice: Random) -> list[int]:
    return [dice.randrange(total) for _ in range(dice.randint(0, most))]
