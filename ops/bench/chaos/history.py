"""The history of a chaos run: faults and progress over time."""

from dataclasses import dataclass, field

from ops.bench.chaos.faults.targets import Proof


@dataclass
class History:
    """What happened when, in seconds since the first fault was due: for figures and the picture."""

    fired: list[tuple[float, str, Proof]] = field(default_factory=list)
    missed: int = 0
    done: list[tuple[float, int]] = field(default_factory=list)
