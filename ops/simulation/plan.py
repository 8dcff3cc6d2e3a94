"""How many replicas a trace takes, of which kind of device, at which price."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.models.model import Model
from ops.simulation.capacity import Capacity
from ops.simulation.devices import Device
from ops.simulation.traces import Arrival, rate_per_s
from workers.simulation.costs import LaunchTimes, Overheads
from workers.simulation.result import Result
from workers.simulation.run import simulate

MOST_REPLICAS = 256


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """What is planned for. bad_share: of the calls that may miss the target or be refused;
    utilisation: the share of their capacity that the formula lets devices be used for."""

    model: Model
    arrivals: Sequence[Arrival]
    overheads: Overheads
    bad_share: float
    utilisation: float
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What one kind takes: result of the least replicas that do, None where MOST_REPLICAS don't;
    beside it the formula's answer, and what it was put together from."""

    device: Device
    capacity: Capacity
    formula: int
    rate_per_s: float
    result: Result | None

    @property
    def price_per_hour(self) -> float | None:
        if self.result is None or self.device.price_per_hour is None:
            return None
        return self.result.replicas * self.device.price_per_hour

    @property
    def price_per_million(self) -> float | None:
        """Of a million calls at the trace's mean rate."""
        hour = self.price_per_hour
        return None if hour is None else hour / (self.rate_per_s * 3600) * 1e6


def plan(asked: PlanRequest, device: Device, times: LaunchTimes) -> Plan:
    """By bisection over simulations. times: on this kind."""
    rate = rate_per_s(asked.arrivals)
    capacity = Capacity.of(asked.model, times, [size for _, size in asked.arrivals])

    def run(replicas: int) -> Result:
        return simulate(
            asked.model,
            replicas,
            asked.arrivals,
            times,
            overheads=asked.overheads,
            seed=asked.seed,
        )

    found = least(run, asked.bad_share, capacity.replicas(rate, 1.0))
    return Plan(device, capacity, capacity.replicas(rate, asked.utilisation), rate, found)


def cheapest(plans: Sequence[Plan]) -> Plan | None:
    """The one with the lowest price; without prices there is none."""
    priced = [(price, plan) for plan in plans if (price := plan.price_per_hour) is not None]
    return min(priced, key=lambda pair: pair[0])[1] if priced else None


def bad_share(result: Result) -> float:
    """Of all calls: too late, or refused."""
    return result.miss_share + result.refused_share


def least(run: Callable[[int], Result], bound: float, guess: int) -> Result | None:
    """The simulation of the fewest replicas whose calls are bad at most to this share."""
    good: Result | None = None
    low, high = 0, min(guess, MOST_REPLICAS)  # low is too few
    while good is None:
        found = run(high)
        if bad_share(found) <= bound:
            good = found
        elif high == MOST_REPLICAS:
            return None
        else:
            low, high = high, min(2 * high, MOST_REPLICAS)
    while high - low > 1:
        middle = (low + high) // 2
        found = run(middle)
        if bad_share(found) <= bound:
            good, high = found, middle
        else:
            low = middle
    return good
