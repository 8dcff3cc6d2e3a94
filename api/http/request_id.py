"""Request ids: in responses, problems and the audit log."""

from collections.abc import MutableMapping
from typing import Any

from starlette.types import Message, Send

from jobs import ids

_KEY = "millrace.request_id"
HEADER = b"x-request-id"


def new_request_id() -> str:
    """Returns a new id, `req_…`."""
    return ids.new_shown("req")


def request_id(scope: MutableMapping[str, Any]) -> str:
    """Returns the id of the request of this scope; made on first use."""
    id: str | None = scope.get(_KEY)
    if id is None:
        id = scope[_KEY] = new_request_id()
    return id


def with_request_id(scope: MutableMapping[str, Any], send: Send) -> Send:
    """Wraps `send` to add the id to the response."""

    async def stamp(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != HEADER]
            message["headers"] = [*headers, (HEADER, request_id(scope).encode())]
        await send(message)

    return stamp
