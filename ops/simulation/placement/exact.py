"""Yardstick of placements: a mixed-integer linear program, solved by HiGHS (scipy).

Copies and devices are counted by kind, not one by one: which copy goes on which device is left out,
and so is that memory may not suffice in pieces. So it is a bound that no placement goes below.

    least   Σ price n
    with    Σ share = 1                     of a model over kinds
            work of a model ≤ copies        one copy does what one device does
            Σ memory · copies ≤ memory · n  by kind, and Σ work ≤ n, copies ≤ n, n ≤ most
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import click
import numpy as np

from jobs.scaling.placement.demand import Demand, Kind
from jobs.scaling.placement.plan import MOST_USED, Placed

_TIME_LIMIT_S = 60.0
_GAP = 1e-3  # of the price, within which a solution suffices


@dataclass(frozen=True, slots=True)
class Exact:
    """Solution of the program."""

    price: float  #: of all devices, an hour
    bound: float  #: no solution costs less
    counts: Mapping[str, int]  #: devices by kind
    copies: Mapping[tuple[str, str], int]  #: by model and kind
    shares: Mapping[tuple[str, str], float]  #: of a model's entries, likewise


def solve(
    demands: Sequence[Demand], kinds: Sequence[Kind], most_used: float = MOST_USED,
    time_limit_s: float = _TIME_LIMIT_S,
) -> Exact:  # fmt: skip
    """Returns the cheapest devices. Raises click.ClickException without scipy, or where there are
    too few devices."""
    milp = _scipy().milp
    pairs = [(d, k) for d, demand in enumerate(demands) for k, kind in enumerate(kinds)
             if demand.fits(kind)]  # fmt: skip
    program = _Program(demands, kinds, pairs, most_used)
    size = len(pairs)
    result = milp(
        np.concatenate([np.zeros(2 * size), [kind.price for kind in kinds]]),
        integrality=np.concatenate([np.zeros(size), np.ones(size + len(kinds))]),
        bounds=program.bounds(),
        constraints=program.constraints(),
        options={"time_limit": time_limit_s, "mip_rel_gap": _GAP},
    )
    if result.x is None:
        raise click.ClickException(f"there is no placement by these kinds: {result.message}")
    shares, devices = result.x[:size], result.x[2 * size :].round()
    copies = result.x[size : 2 * size].round()
    names = [(demands[d].model, kinds[k].name) for d, k in pairs]
    return Exact(
        price=float(result.fun),
        bound=float(result.mip_dual_bound),
        counts={kind.name: int(n) for kind, n in zip(kinds, devices, strict=True) if n},
        copies={name: int(n) for name, n in zip(names, copies, strict=True) if n},
        shares={name: float(n) for name, n in zip(names, shares, strict=True) if n > 0},
    )


def spread(demands: Sequence[Demand], kinds: Sequence[Kind], exact: Exact) -> list[Placed]:
    """Returns devices with the copies of a solution, which says only how many there are: the
    largest first, each on the least loaded device with memory for it. A device is added where the
    memory suffices in sum alone."""
    by_kind: dict[str, list[_Rack]] = {
        kind.name: [_Rack(kind.memory_gib) for _ in range(exact.counts.get(kind.name, 0))]
        for kind in kinds
    }
    memory = {kind.name: kind.memory_gib for kind in kinds}
    for demand in sorted(demands, key=lambda its: -its.memory_gib):
        for kind, racks in by_kind.items():
            count = exact.copies.get((demand.model, kind), 0)
            per_s = exact.shares.get((demand.model, kind), 0.0) * demand.per_s
            for _ in range(count):
                fitting = [rack for rack in racks if rack.holds(demand)]
                if not fitting:
                    racks.append(_Rack(memory[kind]))
                    fitting = racks[-1:]
                least = min(fitting, key=lambda rack: sum(rack.load.values()))
                least.load[demand.model] = per_s / count / demand.rates[kind]
                least.free_gib -= demand.memory_gib
    return [
        Placed(kind, rack.load, dict.fromkeys(rack.load, 0.0))
        for kind, racks in by_kind.items()
        for rack in racks
        if rack.load
    ]


@dataclass(slots=True)
class _Rack:
    """Device that copies are put on."""

    free_gib: float
    load: dict[str, float] = field(default_factory=dict)

    def holds(self, demand: Demand) -> bool:
        """Returns True if there is memory for a first copy of a model."""
        return demand.model not in self.load and demand.memory_gib <= self.free_gib + 1e-9


class _Program:
    """Constraints over shares and copies of each pair of a model and a kind that fit, and over the
    devices of each kind."""

    def __init__(
        self, demands: Sequence[Demand], kinds: Sequence[Kind], pairs: list[tuple[int, int]],
        most_used: float,
    ) -> None:  # fmt: skip
        self._demands, self._kinds, self._pairs, self._used = demands, kinds, pairs, most_used

    def bounds(self) -> Any:
        """Returns the bounds of all variables."""
        size = len(self._pairs)
        most = [np.inf if kind.most is None else kind.most for kind in self._kinds]
        upper = np.concatenate([np.ones(size), np.full(size, np.inf), most])
        return _scipy().Bounds(np.zeros(len(upper)), upper)

    def constraints(self) -> list[Any]:
        """Returns the constraints."""
        size, count = len(self._pairs), len(self._kinds)
        width = 2 * size + count
        whole = np.zeros((len(self._demands), width))
        single, fewer = np.zeros((size, width)), np.zeros((size, width))
        memory, time = np.zeros((count, width)), np.zeros((count, width))
        for n, (d, k) in enumerate(self._pairs):
            demand, kind = self._demands[d], self._kinds[k]
            work = demand.per_s / demand.rates[kind.name] / self._used
            whole[d, n] = 1
            single[n, n], single[n, size + n] = work, -1
            fewer[n, size + n], fewer[n, 2 * size + k] = 1, -1
            memory[k, size + n], time[k, n] = demand.memory_gib, work
        for k, kind in enumerate(self._kinds):
            memory[k, 2 * size + k], time[k, 2 * size + k] = -kind.memory_gib, -1
        linear = _scipy().LinearConstraint
        return [linear(whole, 1, 1), linear(np.vstack([single, fewer, memory, time]), ub=0)]


def _scipy() -> Any:
    """Returns scipy.optimize, which is loaded when it is asked for."""
    try:
        from scipy import optimize
    except ImportError as error:
        raise click.ClickException(
            "the exact optimum needs scipy: pip install 'millrace[bench]'"
        ) from error
    return optimize
