"""Order in which workers of a pool drain: weights that only one of them has are last to go."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TypeVar

K = TypeVar("K")


def drain_order(
    candidates: Mapping[K, Collection[str]], others: Iterable[Collection[str]] = ()
) -> list[K]:
    """Returns the candidates in the order in which they go: at each step the one that has the
    fewest models which nobody has after it, the youngest among equals.

    candidates: models that are ready in each worker, from the oldest to the youngest; others: of
    workers of the pool that stay.
    """
    left, order = dict(reversed(list(candidates.items()))), list[K]()
    copies = Counter(model for models in (*left.values(), *others) for model in models)
    while left:
        goes = min(left, key=lambda one: sum(copies[model] == 1 for model in left[one]))
        copies.subtract(left.pop(goes))
        order.append(goes)
    return order
