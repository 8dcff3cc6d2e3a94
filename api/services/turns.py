"""Places of a process that tenants take in turn."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TenantTurns:
    """Bounded places: a free one goes to the next waiting tenant, round robin, and within a tenant
    to whoever waits longest.

    `each`: places that one tenant may hold at a time; without it, all. Every method runs on the
    event loop.
    """

    def __init__(self, places: int, each: int | None = None) -> None:
        self._free, self._each = places, each or places
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def place(self, tenant: str) -> AsyncIterator[None]:
        """Waits for a place, and holds it for the block."""
        if self._free and self._held[tenant] < self._each:
            self._take(tenant)
        else:
            await self._wait(tenant)
        try:
            yield
        finally:
            self._release(tenant)

    async def _wait(self, tenant: str) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # the place came with the cancellation
                self._release(tenant)
            raise

    def _take(self, tenant: str) -> None:
        self._free -= 1
        self._held[tenant] += 1

    def _release(self, tenant: str) -> None:
        self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
        self._lend()

    def _lend(self) -> None:
        """Lends the free place to the first waiting tenant that may hold one more."""
        for tenant in list(self._waiting):
            if self._held[tenant] >= self._each:
                continue
            turns = self._waiting.pop(tenant)
            while turns and turns[0].cancelled():
                turns.popleft()
            if not turns:
                continue
            turn = turns.popleft()
            if turns:
                self._waiting[tenant] = turns  # behind the others
            self._take(tenant)
            turn.set_result(None)
            return
