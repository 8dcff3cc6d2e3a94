"""Content codings: gzip and deflate of responses and requests."""

import re
import zlib
from collections.abc import Generator, Iterable

from jobs.errors import Malformed, TooLarge, UnsupportedMedia

_LEVEL = 1  # result lines shrink to a fifth; a higher level costs twice for a tenth less
_GZIP = 16 + zlib.MAX_WBITS
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


def decompress(body: bytes, content_encoding: str, max_bytes: int) -> bytes:
    """Returns a gzip or deflate body as plain bytes.

    Raises UnsupportedMedia, Malformed, and TooLarge before it takes more memory than `max_bytes`.
    """
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise UnsupportedMedia(f"the Content-Encoding is {encoding!r}; use gzip or deflate")
    stream = zlib.decompressobj(_GZIP if encoding == "gzip" else zlib.MAX_WBITS)
    try:
        body = stream.decompress(body, max_bytes + 1)
    except zlib.error as error:
        raise Malformed(f"the body is not {encoding}, as its Content-Encoding says") from error
    if len(body) > max_bytes:
        raise TooLarge(f"the body has more than {max_bytes:,} bytes once it is expanded")
    if not stream.eof or stream.unused_data:
        raise Malformed(f"the body's {encoding} ends early, or goes on after its end")
    return body
