"""Tiers of a model's ready workers: those whose launches take about as long.

In Redis the tiers stand in one line each, the fastest first: time of a launch (ms), cost of a row,
workers ("12.5 0.8 wrk_a wrk_b"). Spot workers have tiers of their own, in lines that begin with ~.
The text is empty where all workers are alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

ALIKE = 1.5  #: workers of a tier take at most so many times as long as its fastest,
ALIKE_MS = 10.0  #: or so much longer, ms: too little to decide where calls go

_SPOT = "~"  # before a line


@dataclass(frozen=True, slots=True)
class Speed:
    """How one worker compares with others that serve the model."""

    launch_ms: float  #: a usual launch
    row_cost: float  #: a row of a full launch: device time (ms) by the price of the device
    spot: bool = False  #: its machine may be reclaimed

    def text(self) -> str:
        """Returns it for Redis. It is rounded: tiers should stay what they are while it wavers."""
        return f"{_SPOT if self.spot else ''}{self.launch_ms:.2g} {self.row_cost:.2g}"


SPOT_SPEED = Speed(0.0, 0.0, spot=True)
"""Speed of a spot worker of which nothing else is known."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Ready workers that are alike, all of them spot or none."""

    launch_ms: float  #: a usual launch of the fastest; 0: not known
    row_cost: float  #: a row of a full launch on the cheapest
    workers: Sequence[str]
    spot: bool = False

    def has(self, slot: str) -> bool:
        """Returns True for a slot ("worker/n") of one of these workers."""
        return slot.partition("/")[0] in self.workers


Tiers = Sequence[Tier]
"""The fastest first, those of unknown speed last; empty where all ready workers are alike."""


def tiers_of(speeds: Mapping[str, Speed | None]) -> list[Tier]:
    """Returns the tiers of ready workers by their names; those whose speed is not known count as
    the fastest of their kind, and come last where none of it is known."""
    tiers = list[Tier]()
    for spot in (False, True):
        its = {name: one for name, one in speeds.items() if bool(one and one.spot) is spot}
        tiers += _of_kind(its, spot)
    tiers.sort(key=lambda tier: (tier.launch_ms or inf, tier.spot))
    return tiers if len(tiers) > 1 else []


def _of_kind(speeds: Mapping[str, Speed | None], spot: bool) -> list[Tier]:
    known = [(speed, name) for name, speed in speeds.items() if speed and speed.launch_ms]
    unknown = [name for name, speed in speeds.items() if not (speed and speed.launch_ms)]
    tiers = list[list[tuple[Speed, str]]]()
    for speed, name in sorted(known, key=lambda pair: (pair[0].launch_ms, pair[1])):
        if not tiers or not alike(tiers[-1][0][0].launch_ms, speed.launch_ms):
            tiers.append([])
        tiers[-1].append((speed, name))
    if not tiers:
        return [Tier(0.0, 0.0, unknown, spot)] if unknown else []
    return [
        Tier(
            members[0][0].launch_ms,
            min(speed.row_cost for speed, _ in members),
            [name for _, name in members] + ([] if place else unknown),
            spot,
        )
        for place, members in enumerate(tiers)
    ]


def alike(fastest_ms: float, launch_ms: float) -> bool:
    """Returns True if launches take about as long as the fastest."""
    return launch_ms <= max(ALIKE * fastest_ms, fastest_ms + ALIKE_MS)


def is_slower(worker: str, tiers: Tiers) -> bool:
    """Returns True for a worker beside which faster ones stand."""
    if not tiers or not tiers[0].launch_ms:
        return False
    return not alike(tiers[0].launch_ms, tiers[tier_of(worker, tiers)].launch_ms)


def faster_stay(worker: str, tiers: Tiers) -> bool:
    """Returns True for a worker beside which faster ones stand that aren't spot: only to these it
    leaves calls that stay."""
    return any(not tier.spot for tier in tiers[: tier_of(worker, tiers)])


def leaves_to_others(worker: str, tiers: Tiers) -> bool:
    """Returns True for a spot worker beside which others are ready: it doesn't see the calls that
    stay with these."""
    is_spot = any(tier.spot and worker in tier.workers for tier in tiers)
    return is_spot and not all(tier.spot for tier in tiers)


def read_tiers(text: bytes) -> list[Tier]:
    """Reads the text of tiers."""
    lines = text.decode().splitlines()
    return [
        Tier(float(launch), float(cost), workers, line.startswith(_SPOT))
        for line in lines
        for launch, cost, *workers in (line.removeprefix(_SPOT).split(),)
    ]


def tier_of(worker: str, tiers: Tiers) -> int:
    """Returns the number of a worker's tier; 0 for one that isn't known, and where all are
    alike."""
    return next((n for n, tier in enumerate(tiers) if worker in tier.workers), 0)
