"""Content codings: gzip and deflate of responses, and of requests, which may be in zstd too. Their
bodies are expanded as they come in: what bounds a body counts its expanded bytes."""

import re
import sys
import zlib
from collections.abc import Generator, Iterable

from anyio import CapacityLimiter, to_thread
from starlette.types import Message, Receive

from jobs.errors import Malformed, UnsupportedMedia

if sys.version_info >= (3, 14):
    from compression.zstd import DecompressionParameter, ZstdDecompressor, ZstdError
else:
    from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

_LEVEL = 1  # result lines shrink to a fifth; a higher level costs twice for a tenth less
_GZIP = 16 + zlib.MAX_WBITS
_WINDOWS = {"gzip": _GZIP, "x-gzip": _GZIP, "deflate": zlib.MAX_WBITS}
_ZSTD_OPTIONS: dict[int, int] = {
    DecompressionParameter.window_log_max: 23
}  # 8 MiB, as RFC 9659 bounds it
_LARGE_WINDOW = (
    "the body is zstd with a window over 8 MiB, which is the most: compress it with a smaller one "
    "(zstd without --long or --ultra; window_log 23)"
)
_PIECE_BYTES = 1 << 18  # expanded at a time, in less than a millisecond
# A body that expands a thousand times would hold the event loop for as long as it does: all but its
# first piece is expanded in threads, few at a time, in turn with other bodies.
_PLACES = CapacityLimiter(2)
_MIN_BYTES = 1024  # shorter bodies cost more than they save
_QUALITY = re.compile(r"\s*q\s*=\s*(0(\.[0-9]{0,3})?|1(\.0{0,3})?)\s*", re.IGNORECASE)


def wants_gzip(accept_encoding: str) -> bool:
    """Returns True if an Accept-Encoding (RFC 9110, 12.5.3) prefers gzip to identity, or ranks
    them equal.

    A coding whose quality is invalid is ignored.
    """
    qualities = _qualities(accept_encoding)
    gzip = qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0)))
    return gzip > 0 and gzip >= qualities.get("identity", 0.0)


def wants_deflate(accept_encoding: str) -> bool:
    """Returns True if an Accept-Encoding names deflate, ranked at least as high as identity."""
    qualities = _qualities(accept_encoding)
    deflate = qualities.get("deflate", 0.0)
    return deflate > 0 and deflate >= qualities.get("identity", 0.0)


def _qualities(accept_encoding: str) -> dict[str, float]:
    return dict(filter(None, map(_coding, accept_encoding.lower().split(","))))


def _coding(text: str) -> tuple[str, float] | None:
    name, semicolon, weight = text.partition(";")
    if not semicolon:
        return name.strip(), 1.0
    quality = _QUALITY.fullmatch(weight)
    return (name.strip(), float(quality[1])) if quality else None


def gzip_stream(chunks: Iterable[bytes]) -> Generator[bytes, None, None]:
    """Yields the chunks as one gzip stream, flushed after each chunk."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for chunk in chunks:
        yield stream.compress(chunk) + stream.flush(zlib.Z_SYNC_FLUSH)
    yield stream.flush()


def compress(body: bytes, accept_encoding: str) -> tuple[bytes, str]:
    """Returns the body and its Content-Encoding; "" where it stays as it is: it is short, or no
    coding is accepted."""
    if len(body) < _MIN_BYTES or not accept_encoding:
        return body, ""
    if wants_gzip(accept_encoding):
        return zlib.compress(body, _LEVEL, _GZIP), "gzip"
    if wants_deflate(accept_encoding):
        return zlib.compress(body, _LEVEL), "deflate"
    return body, ""


class Inflated:
    """ASGI's `receive` of a request whose body has a content coding. Its pieces are bounded,
    however far a body expands."""

    def __init__(self, receive: Receive, coding: str) -> None:
        """Raises UnsupportedMedia."""
        if coding != "zstd" and coding not in _WINDOWS:
            message = f"the Content-Encoding is {coding!r}; use gzip, deflate or zstd, or none"
            raise UnsupportedMedia(message)
        self._receive, self._coding = receive, coding
        self._stream = (
            ZstdDecompressor(options=_ZSTD_OPTIONS)
            if coding == "zstd"
            else zlib.decompressobj(_WINDOWS[coding])
        )
        self._is_full = False  # the latest piece was: more may be expanded without more bytes
        self._more = True  # bytes are to come
        self._begun = False

    async def __call__(self) -> Message:
        """Returns the next message, its body expanded. Raises Malformed."""
        if self._is_full:
            # The one of zstd keeps what it has not read.
            rest = getattr(self._stream, "unconsumed_tail", b"")
            return await to_thread.run_sync(self._expanded, rest, limiter=_PLACES)
        message = await self._receive()
        if message["type"] != "http.request":
            return message
        self._more = message.get("more_body", False)
        return self._expanded(message.get("body", b""))

    def _expanded(self, data: bytes) -> Message:
        self._begun = self._begun or bool(data)
        if self._stream.eof and data:
            raise self._malformed()
        try:
            piece = b"" if self._stream.eof else self._stream.decompress(data, _PIECE_BYTES)
        except (zlib.error, ZstdError) as error:
            if "too much memory" in str(error):
                raise Malformed(_LARGE_WINDOW) from error
            raise self._malformed() from error
        self._is_full = len(piece) == _PIECE_BYTES and not self._stream.eof
        more = self._more or self._is_full
        ended_early = self._begun and not (more or self._stream.eof)
        if ended_early or self._stream.unused_data:
            raise self._malformed()
        return {"type": "http.request", "body": piece, "more_body": more}

    def _malformed(self) -> Malformed:
        return Malformed(
            f"the body is not {self._coding}, as its Content-Encoding says, ends early, or goes on "
            "after its end"
        )
