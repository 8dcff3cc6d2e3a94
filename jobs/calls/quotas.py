"""What a caller may use at most, as the lanes count it: in the step that queues a call.

Rates go by the generic cell rate algorithm (ATM Forum, 1996): of each bucket one number is kept,
when it is full again. It holds what may be used within a second, once at least. Who asks for more
than it holds is let in when it is full, and waits the longer for the next time.
"""

from dataclasses import dataclass
from functools import lru_cache

from jobs.identity import Limit
from jobs.limits import Bound, Name, bounds_of

_RATES: tuple[Name, ...] = ("requests_per_s", "tokens_per_s")

_ROUNDING_MS = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class Quota:
    """All that bounds the calls of one caller to one model. rates: as in Limit; flights: how many
    calls may be open at a time. Each is itself alone, so that what is known of it is found fast."""

    tenant: str = ""
    rates: tuple[Bound, ...] = ()
    flights: tuple[Bound, ...] = ()

    @property
    def bounds(self) -> tuple[Bound, ...]:
        return self.rates + self.flights

    def cost(self, bound: Bound, size: int) -> int:
        """What a call of this size takes of a rate."""
        return size if bound.name == "tokens_per_s" else 1


FREE = Quota()
"""Nothing bounds it."""


@lru_cache(4096)
def quota_of(tenant: str, limits: tuple[Limit, ...], model: str) -> Quota:
    """Of the limits that concern a caller, what bounds its calls to a model; "": what bounds its
    requests whatever the model is."""
    rates = [bound for name in _RATES for bound in bounds_of(limits, name, model)]
    flights = bounds_of(limits, "calls_in_flight", model)
    return Quota(tenant, tuple(rates), tuple(flights)) if rates or flights else FREE


@lru_cache(4096)
def requests_of(tenant: str, limits: tuple[Limit, ...]) -> Quota:
    """What bounds a request that is no call: how many there may be in a second, of whatever."""
    requests = tuple(bounds_of(limits, "requests_per_s", ""))
    return Quota(tenant, requests) if requests else FREE


@dataclass(frozen=True, slots=True)
class Remaining:
    """Of a rate: what may still be used at once, and when all of it may be again."""

    units: int
    full_ms: float


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The bound that keeps a request out for longest, for how long, and what is left of it."""

    bound: Bound
    wait_ms: float
    left: int = 0


class QuotaUsage:
    """What was used of quotas, in this process."""

    def __init__(self) -> None:
        self._full_ms: dict[tuple[str, str], float] = {}  # by tenant and place
        self._open: dict[tuple[str, str, str], dict[str, float]] = {}  # by id: until when

    def exceeded(self, quota: Quota, size: int, now_ms: float, drain_ms: float) -> Exceeded | None:
        """Why such a call may not come in. drain_ms: when one of those that are open may have
        ended."""
        found = [self._over(quota, bound, size, now_ms) for bound in quota.rates]
        found += [self._crowded(quota, bound, now_ms, drain_ms) for bound in quota.flights]
        over = [exceeded for exceeded in found if exceeded.wait_ms > _ROUNDING_MS]
        return max(over, key=lambda exceeded: exceeded.wait_ms, default=None)

    def charge(self, quota: Quota, size: int, now_ms: float, id: str, deadline_ms: float) -> None:
        for bound in quota.rates:
            place = quota.tenant, bound.place
            since_ms = max(now_ms, self._full_ms.get(place, 0.0))
            self._full_ms[place] = since_ms + quota.cost(bound, size) * bound.step_ms
        for bound in quota.flights:
            self._calls(quota, bound)[id] = deadline_ms

    def ended(self, id: str) -> None:
        for calls in self._open.values():
            calls.pop(id, None)

    def _over(self, quota: Quota, bound: Bound, size: int, now_ms: float) -> Exceeded:
        ahead_ms = max(0.0, self._full_ms.get((quota.tenant, bound.place), 0.0) - now_ms)
        cost = min(quota.cost(bound, size), bound.burst)
        left = max(0, int(bound.burst - ahead_ms / bound.step_ms))
        return Exceeded(bound, ahead_ms + (cost - bound.burst) * bound.step_ms, left)

    def _crowded(self, quota: Quota, bound: Bound, now_ms: float, drain_ms: float) -> Exceeded:
        calls = self._calls(quota, bound).values()
        crowded = sum(until > now_ms for until in calls) >= bound.most
        return Exceeded(bound, max(1.0, drain_ms) if crowded else 0.0)

    def _calls(self, quota: Quota, bound: Bound) -> dict[str, float]:
        """Whatever the limit was when they came."""
        return self._open.setdefault((quota.tenant, bound.model, bound.key), {})
