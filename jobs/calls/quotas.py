"""Quotas of a caller, which the lanes check in the step that queues a call.

Rates go by the generic cell rate algorithm (ATM Forum, 1996): one number is stored for each bucket,
the time when it is full again. It holds the use of one second, one request at least. A request for
more than it holds is admitted when the bucket is full, and the next one waits the longer.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from jobs.identity import Limit
from jobs.limits import Bound, Name, bounds_of

_RATES: tuple[Name, ...] = ("requests_per_s", "tokens_per_s", "tokens_per_min")

_ROUNDING_MS = 1e-3


class Estimate(NamedTuple):
    """Size of a call when it comes."""

    units: int = 0  #: of its input, in the model's unit
    output_tokens: int = 0  #: tokens that it may generate


NOTHING = Estimate()


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """Bounds of the calls of one caller to one model; compared by identity, for fast look-ups."""

    tenant: str = ""
    rates: tuple[Bound, ...] = ()  #: as in Limit
    flights: tuple[Bound, ...] = ()  #: bounds on open calls
    prepaid: bool = False  #: requests for any model were charged when the request came

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """All bounds: the rates first."""
        return self.rates + self.flights

    def cost(self, bound: Bound, size: Estimate) -> int:
        """Returns the cost of a call of this size for a rate."""
        if bound.name == "tokens_per_s":
            return size.units
        if bound.name == "tokens_per_min":
            return size.units + size.output_tokens
        return 0 if self.prepaid and not bound.model else 1


FREE = Quota()
"""Quota without any bound."""


@lru_cache(4096)
def quota_of(tenant: str, limits: tuple[Limit, ...], model: str, prepaid: bool = False) -> Quota:
    """Returns the quota of a caller's calls to a model. prepaid: see Quota."""
    rates = [bound for name in _RATES for bound in bounds_of(limits, name, model)]
    flights = bounds_of(limits, "calls_in_flight", model)
    return Quota(tenant, tuple(rates), tuple(flights), prepaid) if rates or flights else FREE


@lru_cache(4096)
def requests_of(tenant: str, limits: tuple[Limit, ...]) -> Quota:
    """Returns what every authenticated request is charged to: requests a second for any model."""
    requests = tuple(bounds_of(limits, "requests_per_s", ""))
    return Quota(tenant, requests) if requests else FREE


@dataclass(frozen=True, slots=True)
class Remaining:
    """Rest of a rate."""

    units: int  #: that may be used at once
    full_ms: float  #: time until all of it may be used again


@dataclass(frozen=True, slots=True)
class Exceeded:
    """Bound that keeps a request out for longest."""

    bound: Bound
    wait_ms: float
    left: int = 0  #: units that may be used at once


class QuotaUsage:
    """Use of quotas, counted in this process."""

    def __init__(self) -> None:
        self._full_ms: dict[tuple[str, str], float] = {}  # by tenant and place
        self._open: dict[tuple[str, str, str], dict[str, float]] = {}  # by id: until when
        self._estimated: dict[str, tuple[Quota, int]] = {}  # by id: tokens

    def exceeded(
        self, quota: Quota, size: Estimate, now_ms: float, drain_ms: float
    ) -> Exceeded | None:
        """Returns the bound that a call exceeds. drain_ms: time until an open call may end."""
        costs = {bound: quota.cost(bound, size) for bound in quota.rates}
        states = [self._over_rate(quota, bound, costs[bound] or 1, now_ms) for bound in costs]
        prepaid_ms = max((each.wait_ms for each in states if not costs[each.bound]), default=0.0)
        states += [self._over_open_calls(quota, bound, now_ms, drain_ms) for bound in quota.flights]
        exceeding = [
            state for state in states if state.wait_ms > _ROUNDING_MS and costs.get(state.bound, 1)
        ]
        worst = max(exceeding, key=lambda exceeded: exceeded.wait_ms, default=None)
        return worst and replace(worst, wait_ms=max(worst.wait_ms, prepaid_ms))

    def charge(
        self, quota: Quota, size: Estimate, now_ms: float, id: str, deadline_ms: float
    ) -> None:
        """Charges an admitted call to its quota."""
        for bound in quota.rates:
            place = quota.tenant, bound.place
            since_ms = max(now_ms, self._full_ms.get(place, 0.0))
            self._full_ms[place] = since_ms + quota.cost(bound, size) * bound.step_ms
        for bound in quota.flights:
            self._calls(quota, bound)[id] = deadline_ms
        if size.output_tokens:
            self._estimated[id] = quota, size.units + size.output_tokens

    def settle(self, id: str, tokens: int, now_ms: float) -> None:
        """Charges what a call used, or gives back what it didn't, against its estimate."""
        quota, estimated = self._estimated.pop(id, (FREE, 0))
        more = tokens - estimated
        for bound in quota.rates:
            if bound.name == "tokens_per_min":
                place = quota.tenant, bound.place
                full_ms = self._full_ms[place]
                since_ms = max(now_ms, full_ms) if more > 0 else full_ms
                self._full_ms[place] = since_ms + more * bound.step_ms

    def ended(self, id: str) -> None:
        """Counts a call as open no longer."""
        for calls in self._open.values():
            calls.pop(id, None)

    def _over_rate(self, quota: Quota, bound: Bound, cost: float, now_ms: float) -> Exceeded:
        ahead_ms = max(0.0, self._full_ms.get((quota.tenant, bound.place), 0.0) - now_ms)
        cost = min(cost, bound.burst)
        left = max(0, int(bound.burst - ahead_ms / bound.step_ms))
        return Exceeded(bound, ahead_ms + (cost - bound.burst) * bound.step_ms, left)

    def _over_open_calls(
        self, quota: Quota, bound: Bound, now_ms: float, drain_ms: float
    ) -> Exceeded:
        calls = self._calls(quota, bound).values()
        full = sum(until > now_ms for until in calls) >= bound.most
        return Exceeded(bound, max(1.0, drain_ms) if full else 0.0)

    def _calls(self, quota: Quota, bound: Bound) -> dict[str, float]:
        """Returns the open calls by id, also those that came under another limit."""
        return self._open.setdefault((quota.tenant, bound.model, bound.key), {})
