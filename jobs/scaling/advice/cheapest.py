"""Items where they are cheapest: dearer workers leave a model's items to cheaper ones, as long as
those do them in time. A pure function: keepers, the simulation and tests use it."""

from collections.abc import Collection, Iterable

from jobs.scaling.advice.offers import Offer

ALIKE = 1.25
"""Workers where an item costs at most so many times as at the cheapest are never held back."""

_LEAVE, _KEEP = 0.7, 0.9
"""Shares of the time that is left within which cheaper workers must be done: for a worker to begin
to leave items to them, and for one to go on with it."""


def leaving(
    offers: Iterable[Offer], left_s: float | None, before: Collection[str] = ()
) -> set[str]:
    """Returns the workers that leave the items of a model to cheaper ones.

    offers: of its ready workers; left_s: time until the first of its jobs is to be done, s; None:
    it has none; before: the workers that left items until now.

    By rising cost, workers take part until all of these together are done in time. One of them may
    be away or slower than it says: `left_s` then becomes shorter, until the next one helps."""
    by_cost = sorted(offers, key=lambda offer: (offer.cost, offer.worker))
    found, per_s = set[str](), 0.0
    for offer in by_cost:
        alike = offer.cost <= ALIKE * by_cost[0].cost
        share = _KEEP if offer.worker in before else _LEAVE
        if not alike and (left_s is None or 1 / per_s <= share * left_s):
            found.add(offer.worker)
        else:
            per_s += 1 / max(offer.drain_s, 1e-6)
    return found
