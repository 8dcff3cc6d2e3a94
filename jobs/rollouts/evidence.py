"""Evidence that events fall on the canary more often than its share of the units.

Betting e-process: while both versions are alike, an event (a launch with a failed call, say) falls
on the canary with a probability of at most w, its share of the units. A bettor stakes a part of its
wealth on the canary at each event, at odds that are fair then: the wealth exceeds 1 / α at any time
with probability α at most (Ville's inequality), however often one looks and whatever the ramp. The
evidence is the mean wealth of bettors with different stakes.

Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2023; Ramdas,
Grünwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023.
"""

from collections.abc import Sequence
from math import exp, log1p, sqrt

STAKES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9)
"""Parts of its wealth that each bettor loses at an event beside the canary."""

_LOST = [log1p(-stake) for stake in STAKES]
_MOST = 700.0  # logarithm of the largest wealth: more than that proves nothing more


class Evidence:
    """Wealth so far; 1 at the start."""

    def __init__(self) -> None:
        self._logs = [0.0] * len(STAKES)
        self.events = 0
        self.on_canary = 0  #: events that fell on the canary

    def add(self, on_canary: bool, share: float, events: int = 1) -> None:
        """Adds events. share: the canary's part of the units, fixed before them; 0 to 1."""
        self.events += events
        if on_canary:
            self.on_canary += events
            odds = (1 - share) / share
            gains = [log1p(stake * odds) for stake in STAKES]
        else:
            gains = _LOST
        self._logs = [
            min(_MOST, wealth + events * gain)
            for wealth, gain in zip(self._logs, gains, strict=True)
        ]

    @property
    def value(self) -> float:
        """Mean wealth: at least 1 / α with probability α at most, if both versions are alike."""
        return sum(map(exp, self._logs)) / len(STAKES)


def mean(values: Sequence[float]) -> float:
    """Returns the mean of evidences, which is evidence of the same kind: against one baseline or
    another, for one event or another."""
    return sum(values) / len(values)


class LaunchShare:
    """Share of the canary among the launches of all of the stable version, counted so far.

    Larger than the share of calls where launches of the canary are smaller: then a launch of it has
    an event less likely, and the evidence errs to the safe side.
    """

    _LEAST = 30

    def __init__(self) -> None:
        self._canary, self._stable = 0, 0

    def add(self, canary: int = 0, stable: int = 0) -> None:
        """Counts launches."""
        self._canary += canary
        self._stable += stable

    @property
    def value(self) -> float | None:
        """Upper bound of the share, by a standard deviation of its count; None while few launches
        were counted."""
        if self._stable < self._LEAST:
            return None
        canary = self._canary + sqrt(self._canary) + 1
        return canary / (canary + self._stable)
