"""Places of a process that tenants take in turn."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, AsyncIterator, Generator
from contextlib import asynccontextmanager
from typing import TypeVar

from anyio import CancelScope
from starlette.concurrency import run_in_threadpool

from jobs.errors import Overloaded

_RETRY_S = 1.0
_END = object()

T = TypeVar("T")


class TenantTurns:
    """Bounded places: a free one goes to the next waiting tenant, round robin, and within a tenant
    to whoever waits longest.

    `each`: places that one tenant may hold at a time; without it, all. `most_waiting`: requests of
    a tenant that may wait. Every method runs on the event loop.
    """

    def __init__(self, places: int, each: int | None = None, most_waiting: int = 100) -> None:
        self._free, self._each, self._most_waiting = places, each or places, most_waiting
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def place(self, tenant: str, *, bounded: bool = True) -> AsyncIterator[None]:
        """Waits for a place, and holds it for the block. Raises Overloaded where `bounded`."""
        if self._free and self._held[tenant] < self._each:
            self._take(tenant)
        else:
            await self._wait(tenant, bounded)
        try:
            yield
        finally:
            self._release(tenant)

    async def pieces(
        self, tenant: str, source: Generator[T, None, None]
    ) -> AsyncGenerator[T, None]:
        """Yields what `source` yields, which runs on a thread, each piece in a place of its own: a
        slow reader holds none, and what has begun is not rejected. Closes the source."""
        try:
            while True:
                async with self.place(tenant, bounded=False):
                    piece = await run_in_threadpool(next, source, _END)
                if piece is _END:
                    return
                yield piece  # type: ignore[misc]
        finally:
            with CancelScope(shield=True):
                await run_in_threadpool(source.close)

    async def _wait(self, tenant: str, bounded: bool) -> None:
        turns = self._waiting.setdefault(tenant, deque())
        if bounded and len(turns) >= self._most_waiting:
            message = f"{len(turns)} requests of this tenant wait already; send fewer at a time"
            raise Overloaded(message, retry_after_s=_RETRY_S)
        turn = asyncio.get_running_loop().create_future()
        turns.append(turn)
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
