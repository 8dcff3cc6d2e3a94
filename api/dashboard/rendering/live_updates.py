"""Live updates: the live parts of a page as server-sent events, whenever they change.

The page's route is rendered every EVERY_S or less often, once for all viewers who see the same,
live parts only, with a placeholder for the form token, which differs by viewer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
from fastapi import Request, Response

from api import background
from api.auth.audit import UPDATES
from api.dashboard.auth.viewer import Viewer, recognize_viewer
from api.dependencies import charge
from api.http.authorized_stream import AuthorizedStream
from jobs import clock
from jobs.errors import MillraceError, Overloaded
from jobs.store.db import CONNECTION_ERRORS

_log = logging.getLogger(__name__)
EVERY_S = 2.0
MOST_SHARE = 0.01  # of the time spent rendering one page; slow pages are updated less often
MOST_STREAMS = 100  # per api process; later pages are not live
MOST_OF_A_TENANT = 50  # streams
_HEARTBEAT_S = 15.0
_RETRY = b"retry: 3000\n\n"
_HEARTBEAT = b": still here\n\n"
_EVENTS = "text/event-stream"
TOKEN_PLACEHOLDER = f"token-{clock.random_bits(128):032x}"
"""Placeholder of the form token in shared parts."""

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def is_event_stream(request: Request) -> bool:
    """Returns True if the request comes from an EventSource."""
    return request.method == "GET" and request.headers.get("accept", "") == _EVENTS


class Parts(Response):
    """Response of a page's route with its live parts by name."""

    def __init__(self, parts: dict[str, str]) -> None:
        super().__init__()
        self.parts = parts


@dataclass(eq=False, slots=True)
class _Watch:
    """Stream of one viewer; slow ones skip to the newest parts."""

    request: Request
    handle: Handler
    tenant: str
    parts: dict[str, str] | None  #: newest; None: the stream ends
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, parts: dict[str, str] | None) -> None:
        """Sets the newest parts."""
        self.parts = parts
        self.changed.set()

    async def wait(self) -> None:
        """Waits for new parts, or until a heartbeat is due."""
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await self.changed.wait()
        except TimeoutError:
            return
        self.changed.clear()


class LiveUpdates:
    """Streams of this process, to be used on the event loop."""

    def __init__(self) -> None:
        self._views: dict[Any, set[_Watch]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    def close(self) -> None:
        """Ends all streams; browsers reconnect to another process."""
        self._closed.set()
        for watches in self._views.values():
            for watch in watches:
                watch.show(None)

    async def stop(self) -> None:
        """Ends all streams and waits for their tasks."""
        self.close()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def watching(self) -> Counter[str]:
        """Returns the number of open streams by tenant."""
        return Counter(watch.tenant for watches in self._views.values() for watch in watches)

    def begin(self, key: Any, watch: _Watch) -> None:
        """Adds a stream to a view. Raises Overloaded."""
        open = self.watching()
        full = open.total() >= MOST_STREAMS or open[watch.tenant] >= MOST_OF_A_TENANT
        if self._closed.is_set() or full:
            raise Overloaded("too many live pages", retry_after_s=10)
        others = self._views.setdefault(key, set())
        others.add(watch)
        if len(others) == 1:
            task = background.spawn("live page", self._update(key, others))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def end(self, key: Any, watch: _Watch) -> None:
        """Removes a stream."""
        self._views.get(key, set()).discard(watch)

    async def _update(self, key: Any, watches: set[_Watch]) -> None:
        """Renders for all viewers of a view, as one of them, until the last has left."""
        wait_s = EVERY_S
        while watches and not await self._is_closed_within(wait_s):
            if not watches:
                break
            watch, since_s = next(iter(watches)), clock.monotonic()
            try:
                parts = await render_parts(watch.request, watch.handle)
            except Exception as error:
                if not isinstance(error, (MillraceError, *CONNECTION_ERRORS)):
                    _log.error("failed to update a live page", exc_info=error)
                watches.discard(watch)
                watch.show(None)  # its reconnect gets the error
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
    """Answers an EventSource. Raises what the page's route raises, and Overloaded."""
    context = request.app.state.context
    viewer = await recognize_viewer(request, context)
    await charge(context, viewer.caller)
    lives: LiveUpdates = request.app.state.live_updates
    watch = _Watch(request, handle, viewer.caller.tenant, await render_parts(request, handle))
    watch.changed.set()
    key = (request.url.path, request.url.query, viewer.view)
    lives.begin(key, watch)

    async def allowed() -> bool:
        try:
            now = await recognize_viewer(request, context)
        except (MillraceError, *CONNECTION_ERRORS):
            return False
        return now.view == viewer.view

    async def pieces() -> AsyncGenerator[bytes, None]:
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

    return AuthorizedStream(
        pieces(), allowed, headers={"X-Accel-Buffering": "no"}, media_type=_EVENTS
    )


async def render_parts(request: Request, handle: Handler) -> dict[str, str]:
    """Renders the live parts of a page."""
    # The route's dependencies end with it, not with the stream: they hold a place of the tenant.
    async with AsyncExitStack() as stack:
        own = {"fastapi_inner_astack": stack, "fastapi_function_astack": stack}
        scope = {**request.scope, **own, "state": {UPDATES: True}}
        response = await handle(Request(scope, request.receive))
    return response.parts if isinstance(response, Parts) else {}


def with_placeholder(viewer: Viewer) -> Viewer:
    """Returns the viewer with a placeholder for the form token."""
    return replace(viewer, token=TOKEN_PLACEHOLDER)


def _event(parts: dict[str, str], viewer: Viewer) -> bytes:
    own = {name: html.replace(TOKEN_PLACEHOLDER, viewer.token) for name, html in parts.items()}
    return b"event: parts\ndata: %b\n\n" % orjson.dumps(own)
