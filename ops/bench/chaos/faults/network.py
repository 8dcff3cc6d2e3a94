"""Faults of the connections between two processes."""

from random import Random

from jobs import clock
from ops.bench.chaos.faults.targets import Proof, Stage, Steps, Unfired, a_while, until
from ops.bench.chaos.fleet import LEASE_S
from ops.bench.chaos.network.faulty_proxy import Fault, FaultyProxy
from ops.bench.chaos.network.links import is_injured

_SHORTEST_S, _LONGEST_S = 0.5, 2 * LEASE_S
_HIT_WITHIN_S = 20.0


def link_fault(fault: Fault, stage: Stage, dice: Random) -> Steps[Proof]:
    """Injures what passes between two processes, for up to two leases, until something was hit."""
    name, link = yield from until(lambda: _a_link(stage, dice))
    with stage.holding(name):
        before, since_s = link.hit, clock.monotonic()
        link.inject(fault)
        try:
            yield from a_while(dice.uniform(_SHORTEST_S, _LONGEST_S))
            while link.hit == before and clock.monotonic() < since_s + _HIT_WITHIN_S:
                yield
        finally:
            link.inject("none")
        lasted_s = round(clock.monotonic() - since_s, 3)
    if link.hit == before:
        raise Unfired(f"nothing passed from {name} within {_HIT_WITHIN_S:g} s")
    return {"link": name, "hit": link.hit - before, "lasted_s": lasted_s}


def _a_link(stage: Stage, dice: Random) -> tuple[str, FaultyProxy] | None:
    links = stage.fleet.links.items()
    free = [each for each in links if each[0] not in stage.busy and is_injured(*each)]
    return dice.choice(free) if free else None
