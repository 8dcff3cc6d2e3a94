"""Confidence sequence of a share: of the launches with a failed call, say.

Prior-posterior ratio: where the share is p, the ratio of the uniform prior to the posterior at p is
a martingale as events come. The shares at which it is below 1 / α are an interval that holds at all
times at once with probability 1 - α; it has a width before the first event too.

Waudby-Smith and Ramdas, "Confidence sequences for sampling without replacement", 2020.
"""

from collections.abc import Callable
from math import lgamma, log, log1p

_HALVINGS = 40


def interval(events: int, count: int, alpha: float) -> tuple[float, float]:
    """Returns the bounds of the share behind so many events of `count`; (0, 1) of none."""
    middle = events / count if count else 0.0
    most = log(1 / alpha) - log_beta(events + 1, count - events + 1)

    def is_outside(share: float) -> bool:
        return -events * log(share) - (count - events) * log1p(-share) > most

    low = _edge(is_outside, 0.0, middle) if events else 0.0
    return low, _edge(is_outside, 1.0, middle) if events < count else 1.0


def log_beta(a: float, b: float) -> float:
    """Returns the logarithm of the beta function."""
    return lgamma(a) + lgamma(b) - lgamma(a + b)


def _edge(is_outside: Callable[[float], bool], outside: float, inside: float) -> float:
    """Returns the edge of an interval between a value outside it and one inside."""
    for _ in range(_HALVINGS):
        between = (outside + inside) / 2
        outside, inside = (between, inside) if is_outside(between) else (outside, between)
    return outside
