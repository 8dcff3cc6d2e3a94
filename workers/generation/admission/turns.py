"""Turns of tenants by the tokens that they were served: virtual token counters (Sheng et al.,
Fairness in Serving Large Language Models, 2024)."""

from collections import Counter
from collections.abc import Iterable

_INPUT, _OUTPUT = 1.0, 2.0  # cost of a token


class Turns:
    """Virtual token counters by tenant."""

    def __init__(self) -> None:
        self._counters: dict[str, float] = {}
        self._active = Counter[str]()  # sequences that wait or run
        self._weights: dict[str, float] = {}
        self._latest = 0.0  # counter of the tenant that left last

    def join(self, tenant: str, weight: float) -> None:
        """Counts a sequence of a tenant. One that comes back is lifted to the least active one: it
        saved nothing up meanwhile."""
        self._weights[tenant] = weight
        if tenant not in self._active:
            least = min((self._counters[name] for name in self._active), default=self._latest)
            self._counters[tenant] = max(self._counters.get(tenant, 0.0), least)
        self._active[tenant] += 1

    def leave(self, tenant: str) -> None:
        """Counts a sequence of a tenant as ended."""
        self._active[tenant] -= 1
        if not self._active[tenant]:
            del self._active[tenant]
            self._latest = self._counters[tenant]
            if not self._active:  # nobody has to wait: all start alike
                self._counters.clear()
                self._latest = 0.0

    def serve(self, tenant: str, *, input: int = 0, output: int = 0) -> None:
        """Counts tokens as they are produced."""
        cost = _INPUT * input + _OUTPUT * output
        self._counters[tenant] = self._counters.get(tenant, 0.0) + cost / self._weights[tenant]

    def ordered(self, tenants: Iterable[str]) -> list[str]:
        """Returns tenants, the one with the least tokens by weight first."""
        return sorted(tenants, key=lambda tenant: self._counters.get(tenant, 0.0))

    def counter(self, tenant: str) -> float:
        """Returns a tenant's tokens by weight."""
        return self._counters.get(tenant, 0.0)
