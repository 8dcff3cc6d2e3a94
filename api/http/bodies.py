"""Request bodies: read asynchronously, bounded, and spooled to disk."""

import tempfile
from codecs import BOM_UTF8
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
#: Bytes of a body that may be parsed beside other requests.
LIGHT_BYTES = 1 << 16
#: Values of such a body: each is an object to make and to check.
LIGHT_VALUES = 4096
_PUNCTUATION = (b",", b":", b"[", b"{")
JSON = "application/json"
NDJSON = "application/x-ndjson"


def content_type(request: Request) -> str:
    """Returns the Content-Type without its parameters, in lower case."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def media_type(request: Request, *allowed: str) -> str:
    """Returns the body's media type. Raises UnsupportedMedia if it is none of `allowed`, or
    encoded."""
    media = content_type(request)
    if media not in allowed:
        names = " or ".join(allowed)
        raise UnsupportedMedia(f"the Content-Type is {media or 'missing'!r}; use {names}")
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding != "identity":
        raise UnsupportedMedia(f"the Content-Encoding is {encoding!r}; send the body as it is")
    return media


async def chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """Yields the body as it comes in. Raises TooLarge as early as possible, ClientDisconnect."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > max_bytes:
        raise _too_large(max_bytes)
    size, more = 0, True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk, more = message.get("body", b""), message.get("more_body", False)
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield chunk


@asynccontextmanager
async def spooled(
    request: Request, max_bytes: int, on_chunk: Callable[[bytes], object] | None = None
) -> AsyncIterator[IO[bytes]]:
    """Yields the whole body as a file at its start, on disk when it is large. `on_chunk` gets
    every chunk."""
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as file:
        async for chunk in chunks(request, max_bytes):
            file.write(chunk)
            if on_chunk:
                on_chunk(chunk)
        file.seek(0)
        yield file


def is_declared_within(request: Request, most_bytes: int) -> bool:
    """Returns True if the request declares a body of at most so many bytes."""
    declared = request.headers.get("content-length", "")
    return declared.isdecimal() and len(declared) < 10 and int(declared) <= most_bytes


def is_large(body: IO[bytes]) -> bool:
    """Returns True if a spooled body went to disk."""
    size = body.seek(0, SEEK_END)
    body.seek(0)
    return size > _IN_MEMORY


def is_heavy(body: bytes, light_bytes: int = LIGHT_BYTES) -> bool:
    """Returns True if parsing a body would hold up others.

    Punctuation in texts counts as values too: the body is not parsed.
    """
    return len(body) > light_bytes or sum(map(body.count, _PUNCTUATION)) > LIGHT_VALUES


def is_heavy_file(body: IO[bytes]) -> bool:
    """Does the same with a spooled body."""
    start = body.read(LIGHT_BYTES + 1)
    body.seek(0)
    return is_heavy(start)


async def read_all(request: Request, max_bytes: int) -> bytes:
    """Returns the whole body in memory. Raises TooLarge, ClientDisconnect."""
    return b"".join([chunk async for chunk in chunks(request, max_bytes)])


def limit_small_body(scope: Scope, receive: Receive) -> Receive:
    """Bounds the bodies that FastAPI reads whole, before it authenticates, and rejects JSON that is
    not plain UTF-8, which it would read."""
    size, start = 0, b""
    is_json = b"json" in dict(scope["headers"]).get(b"content-type", b"")

    async def bounded() -> Message:
        nonlocal size, start
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > LIGHT_BYTES:
            raise HTTPException(413, _too_large(LIGHT_BYTES).detail)
        message = await receive()
        size += len(message.get("body", b""))
        if size > LIGHT_BYTES:
            raise HTTPException(413, _too_large(LIGHT_BYTES).detail)
        start = (start + message.get("body", b""))[: len(BOM_UTF8)]
        if is_json and (start == BOM_UTF8 or b"\0" in message.get("body", b"")):
            raise HTTPException(400, "not valid JSON: it must be UTF-8, without a byte order mark")
        return message

    return bounded


def _too_large(max_bytes: int) -> TooLarge:
    return TooLarge(f"the body has more than {max_bytes:,} bytes; split it into several")
