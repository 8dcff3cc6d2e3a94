"""One id a request: on its answer, in the problem that it may be, and in the audit log."""

from collections.abc import MutableMapping
from typing import Any

from starlette.types import Message, Send

from jobs import ids

_KEY = "millrace.request_id"
HEADER = b"x-request-id"


def new_request_id() -> str:
    return ids.show("req", ids.new())


def request_id(scope: MutableMapping[str, Any]) -> str:
    """The id of the request that this scope is of; made when it is first asked for."""
    found: str = scope.setdefault(_KEY, "") or new_request_id()
    scope[_KEY] = found
    return found


def stamped(scope: MutableMapping[str, Any], send: Send) -> Send:
    """Puts the id on the answer."""

    async def stamp(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [pair for pair in message.get("headers", ()) if pair[0].lower() != HEADER]
            message["headers"] = [*headers, (HEADER, request_id(scope).encode())]
        await send(message)

    return stamp
