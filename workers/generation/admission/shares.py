"""Shares of tenants in the places of calls."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from workers.generation.requests import Sequenced


class SharedRoom(NamedTuple):
    """Places that tenants with more than their share would give up to calls of others."""

    calls: int  #: of others that could start in them
    above: tuple[str, ...]  #: tenants with more than their share


NO_ROOM = SharedRoom(0, ())


def shared_room(running: Iterable[Sequenced], waiting: Iterable[Sequenced]) -> SharedRoom:
    """Returns the places to give up, if one more tenant came, less those that calls which wait will
    get. running, waiting: sequences of a host."""
    held, weights = Counter[str](), dict[str, float]()
    for one in running:
        if one.request.is_call:
            held[one.request.tenant] += 1
            weights[one.request.tenant] = one.request.weight
    each = held.total() / (sum(weights.values()) + 1)
    spare = {tenant: int(count - each * weights[tenant]) for tenant, count in held.items()}
    above = tuple(tenant for tenant, places in spare.items() if places > 0)
    others = sum(one.request.tenant not in above for one in waiting)
    return SharedRoom(max(0, sum(spare[tenant] for tenant in above) - others), above)
