"""Schedule of faults: a function of the seed."""

from dataclasses import dataclass
from random import Random

#: Number of each kind in a thousand faults.
SHARES = {
    "worker_killed": 150,
    "worker_stopped": 110,
    "worker_terminated": 110,
    "api_killed": 110,
    "keeper_killed": 110,
    "postgres_stopped": 110,
    "redis_killed": 60,
    "redis_flushed": 60,
    "nudge_dropped": 45,
    "nudge_doubled": 45,
    "upload_broken_off": 45,
    "stream_broken_off": 45,
}


@dataclass(frozen=True, slots=True)
class Planned:
    """Fault of the schedule."""

    number: int
    at_s: float  #: since the start
    kind: str
    seed: int  #: of its random choices


def plan(seed: int, faults: int, length_s: float) -> list[Planned]:
    """Plans so many faults over that time: each kind by its share, in random order."""
    dice = Random(seed)
    kinds = _deal(faults)
    dice.shuffle(kinds)
    step_s = length_s / max(1, faults)
    return [
        Planned(number, (number + dice.random()) * step_s, kind, dice.getrandbits(32))
        for number, kind in enumerate(kinds)
    ]


def _deal(faults: int) -> list[str]:
    """Kinds by their shares; remainders go to those that rounding cut most."""
    all_shares = sum(SHARES.values())
    exact = {kind: faults * share / all_shares for kind, share in SHARES.items()}
    dealt = {kind: int(count) for kind, count in exact.items()}
    short = sorted(exact, key=lambda kind: dealt[kind] - exact[kind])
    for kind in short[: faults - sum(dealt.values())]:
        dealt[kind] += 1
    return [kind for kind, count in dealt.items() for _ in range(count)]
