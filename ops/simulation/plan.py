"""Number of replicas that a trace needs, by kind of device, and their price."""

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
    """Load and bounds to plan for."""

    model: Model
    arrivals: Sequence[Arrival]
    overheads: Overheads
    bad_share: float  #: bound of the calls that miss the target or are refused
    utilisation: float  #: share of the capacity that the formula uses
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """Need of one kind of device."""

    device: Device
    capacity: Capacity
    formula: int  #: replicas by the formula
    rounded_first: int  #: by the same, with busy devices rounded up before the rest
    rate_per_s: float
    result: Result | None  #: of the fewest replicas; None where MOST_REPLICAS are too few

    @property
    def price_per_hour(self) -> float | None:
        """Price of all replicas; None where it is unknown."""
        return None if self.result is None else self.device.price(self.result.replicas)

    @property
    def price_per_million(self) -> float | None:
        """Price of a million calls at the trace's mean rate."""
        hour = self.price_per_hour
        return None if hour is None else hour / (self.rate_per_s * 3600) * 1e6


def plan(request: PlanRequest, device: Device, times: LaunchTimes) -> Plan:
    """Finds the fewest replicas by bisection over simulations. times: on this device."""
    rate = rate_per_s(request.arrivals)
    capacity = Capacity.of(request.model, times, [size for _, size in request.arrivals])

    def run(replicas: int) -> Result:
        """Simulates so many replicas."""
        return simulate(
            request.model,
            replicas,
            request.arrivals,
            times,
            overheads=request.overheads,
            seed=request.seed,
        )

    result = least(run, request.bad_share, capacity.replicas(rate, 1.0))
    formula = capacity.replicas(rate, request.utilisation)
    rounded = capacity.rounded_first(rate, request.utilisation)
    return Plan(device, capacity, formula, rounded, rate, result)


def cheapest(plans: Sequence[Plan]) -> Plan | None:
    """Plan with the lowest price; None without prices."""
    priced = [(price, plan) for plan in plans if (price := plan.price_per_hour) is not None]
    return min(priced, key=lambda pair: pair[0])[1] if priced else None


def bad_share(result: Result) -> float:
    """Share of calls that are late or refused."""
    return result.miss_share + result.refused_share


def least(run: Callable[[int], Result], bound: float, guess: int) -> Result | None:
    """Result of the fewest replicas whose bad_share is within a bound."""
    good: Result | None = None
    low, high = 0, min(guess, MOST_REPLICAS)  # low is too few
    while good is None:
        result = run(high)
        if bad_share(result) <= bound:
            good = result
        elif high == MOST_REPLICAS:
            return None
        else:
            low, high = high, min(2 * high, MOST_REPLICAS)
    while high - low > 1:
        middle = (low + high) // 2
        result = run(middle)
        if bad_share(result) <= bound:
            good, high = result, middle
        else:
            low = middle
    return good
