"""Requests counted by their route's template."""

from starlette.types import Message, Scope, Send

from jobs import clock
from jobs.telemetry.metrics import record

UNKNOWN = "unknown"  #: Route label of requests without a route; paths are chosen by clients.
_STREAM = b"text/event-stream"


class CountedResponse:
    """Response to one request. `route` is "" until FastAPI has found it; timed: by the histogram
    of requests, which calls leave to their own."""

    def __init__(self, scope: Scope, send: Send, route: str = "", *, timed: bool = True) -> None:
        self._scope, self._send, self._route = scope, send, route
        self._since_s = clock.monotonic()
        self._status, self._timed = 0, timed

    async def send(self, message: Message) -> None:
        """Sends a message, and records the status."""
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._timed = self._timed and not _is_stream(message)
        await self._send(message)

    def count(self) -> None:
        """Counts the request, once it was answered or its client left."""
        if self._status:
            seconds = clock.monotonic() - self._since_s if self._timed else None
            route = self._route or _template(self._scope)
            record.request(self._scope["method"], route, self._status, seconds)


def _is_stream(message: Message) -> bool:
    headers = message.get("headers", ())
    return any(name == b"content-type" and value.startswith(_STREAM) for name, value in headers)


def _template(scope: Scope) -> str:
    return getattr(scope.get("route"), "path", UNKNOWN)
