"""Request bodies: read asynchronously, bounded, and spooled to disk."""

import tempfile
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from os import SEEK_END
from typing import IO, Protocol

from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope

from api.http.compression import Inflated
from jobs.errors import MillraceError, TooLarge, UnsupportedMedia

_INFLATED = "millrace.inflated"  # in a request's scope: where to receive its body from
_PLAIN = ("", "identity")
_LARGE_BYTES = 1 << 20
#: Bytes of a body that may be parsed beside other requests.
LIGHT_BYTES = 1 << 16
#: Values of such a body: each is an object to make and to check.
LIGHT_VALUES = 4096
_PUNCTUATION = (b",", b":", b"[", b"{")
JSON = "application/json"
NDJSON = "application/x-ndjson"


def header(request: Request, name: bytes) -> bytes:
    """Returns a header's first value; empty without one. name: in lower case."""
    for found, value in request.scope["headers"]:
        if found == name:
            return bytes(value)
    return b""


def content_type(request: Request) -> str:
    """Returns the Content-Type without its parameters, in lower case."""
    declared = header(request, b"content-type").decode("latin-1")
    return declared.partition(";")[0].strip().lower()


def media_type(request: Request, *allowed: str) -> str:
    """Returns the body's media type; one with a content coding is expanded as it comes in. Raises
    UnsupportedMedia for a media type that is none of `allowed`, or another coding."""
    media = content_type(request)
    if media not in allowed:
        names = " or ".join(allowed)
        raise UnsupportedMedia(f"the Content-Type is {media or 'missing'!r}; use {names}")
    if header(request, b"content-encoding"):
        expand(request)
    return media


def expand(request: Request) -> None:
    """Has a body with a content coding expanded as it comes in. Raises UnsupportedMedia."""
    coding = header(request, b"content-encoding").decode("latin-1").lower()
    if coding not in _PLAIN:
        request.scope[_INFLATED] = Inflated(request.receive, coding)


async def chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """Yields the body as it comes in. Raises TooLarge as early as possible, ClientDisconnect."""
    check_declared(request, max_bytes)
    size, more = 0, True
    while more:
        chunk, more = await receive(request)
        size += len(chunk)
        if size > max_bytes:
            raise too_large(max_bytes)
        yield chunk


def check_declared(request: Request, max_bytes: int) -> None:
    """Raises TooLarge where the body is longer by its own account."""
    declared = header(request, b"content-length")
    if declared.isdigit() and int(declared) > max_bytes:
        raise too_large(max_bytes)


async def receive(request: Request) -> tuple[bytes, bool]:
    """Returns the next chunk, and True if others follow it. Raises ClientDisconnect."""
    message = await (request.scope.get(_INFLATED) or request.receive)()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


class Meter(Protocol):
    """Counter of the bytes of one upload; see api/services/intake/upload_meter.py."""

    async def add(self, size: int) -> None:
        """Counts bytes that are about to be written; raises where there is no room for them."""

    def __enter__(self) -> object: ...

    def __exit__(self, *exc: object) -> None:
        """Ends the upload."""


@asynccontextmanager
async def spooled(
    request: Request,
    max_bytes: int,
    meter: Meter,
    on_chunk: Callable[[bytes], object] | None = None,
) -> AsyncIterator[IO[bytes]]:
    """Yields the whole body as a file at its start, on disk beyond 64 KiB. `on_chunk` gets every
    chunk. Raises what the meter does."""
    with tempfile.SpooledTemporaryFile(LIGHT_BYTES) as file, meter:
        async for chunk in chunks(request, max_bytes):
            await meter.add(len(chunk))
            file.write(chunk)
            if on_chunk:
                on_chunk(chunk)
        file.seek(0)
        yield file


def is_declared_within(request: Request, most_bytes: int) -> bool:
    """Returns True if the request declares a body of at most so many bytes, without a content
    coding."""
    declared = request.headers.get("content-length", "")
    if _INFLATED in request.scope:
        return False
    return declared.isdecimal() and len(declared) < 10 and int(declared) <= most_bytes


def is_large(body: IO[bytes]) -> bool:
    """Returns True if storing a spooled body would hold up others."""
    size = body.seek(0, SEEK_END)
    body.seek(0)
    return size > _LARGE_BYTES


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


def limit_small_body(scope: Scope, receive: Receive) -> Receive:
    """Bounds the bodies that FastAPI reads whole, before it authenticates, and rejects JSON that is
    not plain UTF-8, which it would read."""
    size, start = 0, b""
    headers = dict(scope["headers"])
    is_json = b"json" in headers.get(b"content-type", b"")
    coding = headers.get(b"content-encoding", b"").decode("latin-1").lower()
    source = receive if coding in _PLAIN else None

    async def bounded() -> Message:
        nonlocal size, start, source
        declared = dict(scope["headers"]).get(b"content-length", b"")
        if declared.isdigit() and int(declared) > LIGHT_BYTES:
            raise HTTPException(413, too_large(LIGHT_BYTES).detail)
        try:
            source = source or Inflated(receive, coding)
            message = await source()
        except MillraceError as error:  # FastAPI would make it another one
            raise HTTPException(error.status, error.detail) from error
        size += len(message.get("body", b""))
        if size > LIGHT_BYTES:
            raise HTTPException(413, too_large(LIGHT_BYTES).detail)
        start = (start + message.get("body", b""))[: len(BOM_UTF8)]
        if is_json and (start == BOM_UTF8 or b"\0" in message.get("body", b"")):
            raise HTTPException(400, "not valid JSON: it must be UTF-8, without a byte order mark")
        return message

    return bounded


def too_large(max_bytes: int) -> TooLarge:
    """Returns the error for a body of more bytes."""
    return TooLarge(f"the body has more than {max_bytes:,} bytes; split it into several")
