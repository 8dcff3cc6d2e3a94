"""Request ids: in responses, problems and the audit log."""

from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

from starlette.types import Message, Send

from jobs import ids

KEY = "millrace.request_id"  #: In the scope of a request: its id.
HEADER = b"x-request-id"
ALSO: dict[str, bytes] = {}
"""Further name of the header, by path prefix: others' clients look for their own."""
SHARED_PATHS: dict[str, Callable[[Mapping[bytes, bytes]], str | None]] = {}
"""By prefix of paths that several APIs have: finds the prefix of the API that a request is meant
for, by its headers; None for that of the path."""


def new_request_id() -> str:
    """Returns a new id, `req_…`."""
    return ids.new_shown("req")


def request_id(scope: MutableMapping[str, Any]) -> str:
    """Returns the id of the request of this scope; made on first use."""
    id: str | None = scope.get(KEY)
    if id is None:
        id = scope[KEY] = new_request_id()
    return id


def call_id(scope: MutableMapping[str, Any]) -> str:
    """Returns the id of the only call of a request, `call_…`: the request's, with another prefix.
    To make a second one takes as long as to parse the body."""
    return "call" + request_id(scope).removeprefix("req")


def api_path(scope: MutableMapping[str, Any]) -> str:
    """Returns a path of the API that a request is meant for: its own, unless several APIs have it
    and the headers name another one."""
    path: str = scope["path"]
    for prefix, find in SHARED_PATHS.items():
        if path == prefix or path.startswith(f"{prefix}/"):
            return find(dict(scope.get("headers", ()))) or path
    return path


def headers_of(scope: MutableMapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Returns the headers with the id of the request of this scope."""
    id, path = request_id(scope).encode(), api_path(scope)
    names = [HEADER, *(ALSO[prefix] for prefix in ALSO if path.startswith(prefix))]
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
