"""Slots of a few processes, which tenants share."""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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


class Turns:
    """Slots that coroutines wait for: tenants in turn, one tenant's tasks in their order.

    The next slot is for the tenant that has the fewest and, of several, for the one that has waited
    the longest since its last turn.
    """

    def __init__(self, slots: int) -> None:
        self._slots = TenantSlots(slots)
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # in the order of their turns

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Waits for a slot, and has it for the block."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        self._grant()
        try:
            await turn
            yield
        finally:
            if turn.done() and not turn.cancelled():
                self._slots.give_back(tenant)
            else:
                self._leave(tenant, turn)
            self._grant()

    def _grant(self) -> None:
        """Gives free slots to those that wait."""
        while tenants := list(filter(self._slots.has_room, self._waiting)):
            tenant = min(tenants, key=self._slots.used)
            queue = self._waiting.pop(tenant)
            turn = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # now the last of those with as many slots
            if not turn.done():
                self._slots.take(tenant)
                turn.set_result(None)

    def _leave(self, tenant: str, turn: "asyncio.Future[None]") -> None:
        queue = self._waiting.get(tenant, deque())
        if turn in queue:
            queue.remove(turn)
            if not queue:
                del self._waiting[tenant]
