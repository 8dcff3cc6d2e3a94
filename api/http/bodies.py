"""Bodies on their way in: read asynchronously, bounded, and spooled to disk."""

import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import SEEK_END
from typing import IO

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from jobs.errors import TooLarge, UnsupportedMedia

_IN_MEMORY = 1 << 20
_SMALL = 1 << 20
JSON = "application/json"
NDJSON = "application/x-ndjson"


def kind(request: Request) -> str:
    """The Content-Type without its parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def media_type(request: Request, *allowed: str) -> str:
    """The body's type; raises UnsupportedMedia where it is none of those."""
    given = kind(request)
    if given not in allowed:
        names = " or ".join(allowed)
        raise UnsupportedMedia(f"the Content-Type is {given or 'missing'!r}; use {names}")
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedMedia(f"the Content-Encoding is {encoding!r}; send the body as it is")
    return given


async def chunks(request: Request, most_bytes: int) -> AsyncIterator[bytes]:
    """The body as it comes in. Raises TooLarge as soon as it is known, ClientDisconnect."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most_bytes:
        raise _too_large(most_bytes)
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > most_bytes:
            raise _too_large(most_bytes)
        yield chunk


@asynccontextmanager
async def spooled(
    request: Request, most_bytes: int, each: Callable[[bytes], object] | None = None
) -> AsyncIterator[IO[bytes]]:
    """The whole body as a file, at its start; on disk when it is large. `each` sees every chunk."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        async for chunk in chunks(request, most_bytes):
            file.write(chunk)
            if each:
                each(chunk)
        file.seek(0)
        yield file


def is_large(body: IO[bytes]) -> bool:
    """Whether a spooled body went to disk."""
    size = body.seek(0, SEEK_END)
    body.seek(0)
    return size > _IN_MEMORY


async def whole(request: Request, most_bytes: int) -> bytes:
    """The whole body in memory."""
    return b"".join([chunk async for chunk in chunks(request, most_bytes)])


def small(scope: Scope, receive: Receive) -> Receive:
    """For routes whose body FastAPI reads: whole, and before anybody asks who sent it."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > _SMALL:
            raise HTTPException(413, _too_large(_SMALL).detail)
        message = await receive()
        size += len(message.get("body", b""))
        if size > _SMALL:
            raise HTTPException(413, _too_large(_SMALL).detail)
        return message

    return bounded


def _too_large(most_bytes: int) -> TooLarge:
    return TooLarge(f"the body has more than {most_bytes:,} bytes; split it into several")
