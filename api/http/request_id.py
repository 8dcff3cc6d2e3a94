"""Request ids: in responses, problems and the audit log."""

from collections.abc import MutableMapping
from typing import Any

from starlette.types import Message, Send

from jobs import ids

KEY = "millrace.request_id"  #: In the scope of a request: its id.
HEADER = b"x-request-id"
ALSO: dict[str, bytes] = {}
"""Further name of the header, by path prefix: others' clients look for their own."""


def new_request_id() -> str:
    """Returns a new id, `req_…`."""
    return ids.new_shown("req")


def request_id(scope: MutableMapping[str, Any]) -> str:
    """Returns the id of the request of this scope; made on first use."""
    id: str | None = scope.get(KEY)
    if id is None:
        id = scope[KEY] = new_request_id()
    return id


def headers_of(scope: MutableMapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Returns the headers with the id of the request of this scope."""
    id = request_id(scope).encode()
    names = [HEADER, *(ALSO[prefix] for prefix in ALSO if scope["path"].startswith(prefix))]
    return [(name, id) for name in names]


def with_request_id(scope: MutableMapping[str, Any], send: Send) -> Send:
    """Wraps `send` to add the id to the response."""

    async def stamp(message: Message) -> None:
        if message["type"] == "http.response.start":
            ids = headers_of(scope)
            names = {name for name, _ in ids}
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() not in names]
            message["headers"] = [*headers, *ids]
        await send(message)

    return stamp
