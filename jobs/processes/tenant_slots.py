"""Slots of a few processes, which tenants share."""

from collections import Counter


class TenantSlots:
    """Slots in use, by tenant.

    A tenant has no more slots than it leaves free: alone it gets half of them, rounded up, and one
    is there for the next tenant, however long its tasks are. Not thread-safe.
    """

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._used: Counter[str] = Counter()

    def used(self, tenant: str) -> int:
        """Returns the number of slots that a tenant has."""
        return self._used[tenant]

    def has_room(self, tenant: str) -> bool:
        """Returns True if this tenant may take another slot."""
        return self._used[tenant] < self._free

    def full(self) -> list[str]:
        """Returns the tenants that have slots and may take no other."""
        return [tenant for tenant in self._used if not self.has_room(tenant)]

    def take(self, tenant: str) -> None:
        """Takes a slot, where there is room."""
        self._free -= 1
        self._used[tenant] += 1

    def give_back(self, tenant: str) -> None:
        """Gives a slot back."""
        self._free += 1
        self._used[tenant] -= 1
        if not self._used[tenant]:
            del self._used[tenant]
