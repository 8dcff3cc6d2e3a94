"""Pages that go on: their live parts, sent as server-sent events whenever they changed.

The page's own route is asked again, every EVERY_S or less often, by one viewer for all who see the
same. It renders only what is live, with a mark where a form's token stands: that is each viewer's
own.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.responses import StreamingResponse

from api.dashboard.auth.viewer import Viewer, recognize_viewer
from jobs import clock
from jobs.errors import MillraceError, Overloaded
from jobs.store.db import CONNECTION_ERRORS

_log = logging.getLogger(__name__)
EVERY_S = 2.0
MOST_SHARE = 0.01
"""Of the time at most goes into looking for one page: what takes long is looked at less often."""
MOST_STREAMS = 100
"""Of one api process; whoever comes later has the page without news."""
MOST_OF_A_TENANT = 50
"""Of those: no tenant takes all."""
_HEARTBEAT_S = 15.0
_RETRY = b"retry: 3000\n\n"
_HEARTBEAT = b": still here\n\n"
_EVENTS = "text/event-stream"
MARK = f"token-{clock.random_bits(128):032x}"
"""In place of a form's token, in what many viewers share."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def is_asked_for(request: Request) -> bool:
    """Whether an EventSource asks, not somebody who wants the page."""
    return request.method == "GET" and request.headers.get("accept", "") == _EVENTS


class Parts(Response):
    """What is live in a page, by its name, as a page's route gives it."""

    def __init__(self, parts: dict[str, str]) -> None:
        super().__init__()
        self.parts = parts


@dataclass(eq=False, slots=True)
class _Watch:
    """One viewer's stream. It gets the newest parts when it can take them. parts: None: it ends."""

    request: Request
    handle: Handler
    tenant: str
    parts: dict[str, str] | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, parts: dict[str, str] | None) -> None:
        self.parts = parts
        self.changed.set()

    async def wait(self) -> None:
        """Until there is something to show, or a heartbeat is due."""
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await self.changed.wait()
        except TimeoutError:
            return
        self.changed.clear()


class LiveUpdates:
    """The streams of this process. Every method belongs to the event loop."""

    def __init__(self) -> None:
        self._views: dict[Any, set[_Watch]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Ends every stream: the process stops, and another one will go on."""
        self._closed.set()
        for watches in self._views.values():
            for watch in watches:
                watch.show(None)

    async def stop(self) -> None:
        self.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def watching(self) -> Counter[str]:
        """How many streams are open, by tenant."""
        return Counter(watch.tenant for watches in self._views.values() for watch in watches)

    def begin(self, key: Any, watch: _Watch) -> None:
        """Raises Overloaded."""
        open = self.watching()
        full = open.total() >= MOST_STREAMS or open[watch.tenant] >= MOST_OF_A_TENANT
        if self._closed.is_set() or full:
            raise Overloaded("too many pages are live here now", retry_after_s=10)
        others = self._views.setdefault(key, set())
        others.add(watch)
        if len(others) == 1:
            task = asyncio.create_task(self._go_on(key, others))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def end(self, key: Any, watch: _Watch) -> None:
        self._views.get(key, set()).discard(watch)

    async def _go_on(self, key: Any, watches: set[_Watch]) -> None:
        """Looks for all of them, as one of them, until the last has gone."""
        wait_s = EVERY_S
        while watches and not await self._is_closed_within(wait_s):
            if not watches:
                break
            watch, since_s = next(iter(watches)), clock.monotonic()
            try:
                parts = await parts_of(watch.request, watch.handle)
            except Exception as error:
                if not isinstance(error, (MillraceError, *CONNECTION_ERRORS)):
                    _log.error("a live page failed", exc_info=error)
                watches.discard(watch)
                watch.show(None)  # whoever asks again is told why
                continue
            for each in watches:
                each.show(parts)
            wait_s = max(EVERY_S, (clock.monotonic() - since_s) / MOST_SHARE)
        if self._views.get(key) is watches:
            del self._views[key]

    async def _is_closed_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                return await self._closed.wait()
        except TimeoutError:
            return False


async def stream(request: Request, handle: Handler) -> Response:
    """The answer to an EventSource. Raises what the page's route raises, and Overloaded."""
    shared = request.app.state.context
    viewer = await recognize_viewer(request, shared)
    lives: LiveUpdates = request.app.state.live_updates
    watch = _Watch(request, handle, viewer.caller.tenant, await parts_of(request, handle))
    watch.changed.set()
    key = (request.url.path, request.url.query, viewer.view)
    lives.begin(key, watch)

    async def allowed() -> bool:
        try:
            now = await recognize_viewer(request, shared)
        except (MillraceError, *CONNECTION_ERRORS):
            return False
        return now.view == viewer.view

    async def pieces() -> AsyncIterator[bytes]:
        sent: dict[str, str] = {}
        try:
            yield _RETRY
            while True:
                await watch.wait()
                if watch.parts is None or not await allowed():
                    return
                news = {name: html for name, html in watch.parts.items() if sent.get(name) != html}
                sent |= news
                yield _event(news, viewer) if news else _HEARTBEAT
        finally:
            lives.end(key, watch)

    return StreamingResponse(pieces(), headers={"X-Accel-Buffering": "no"}, media_type=_EVENTS)


async def parts_of(request: Request, handle: Handler) -> dict[str, str]:
    """What is live in the page now."""
    response = await handle(Request({**request.scope, "state": {}}, request.receive))
    return response.parts if isinstance(response, Parts) else {}


def shared_by_many(viewer: Viewer) -> Viewer:
    """The viewer whose parts anybody may get who sees the same."""
    return replace(viewer, token=MARK)


def _event(parts: dict[str, str], viewer: Viewer) -> bytes:
    own = {name: html.replace(MARK, viewer.token) for name, html in parts.items()}
    return b"event: parts\ndata: %b\n\n" % orjson.dumps(own)
