"""Tenants whose calls wait for one model, in memory."""

from jobs.calls.lanes import TenantShare


class WaitingTenants:
    """Number of calls that wait, and weight, by tenant."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[int, float]] = {}

    def share(self, tenant: str, weight: float) -> TenantShare:
        """Returns the position of a tenant that sends a call of this weight."""
        own, counted = self._waiting.get(tenant, (0, 0.0))
        waiting = sum(calls for calls, _ in self._waiting.values())
        weights = sum(its for _, its in self._waiting.values()) - counted + weight
        return TenantShare(waiting, own, weight, weights)

    def add(self, tenant: str, weight: float) -> None:
        """Counts a call that waits."""
        calls, _ = self._waiting.get(tenant, (0, 0.0))
        self._waiting[tenant] = calls + 1, weight

    def remove(self, tenant: str) -> None:
        """Counts a call that waits no more."""
        calls, weight = self._waiting[tenant]
        if calls > 1:
            self._waiting[tenant] = calls - 1, weight
        else:
            del self._waiting[tenant]
