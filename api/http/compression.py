"""Bodies that were made smaller: answers for those who ask, and what comes in."""

import re
import zlib
from collections.abc import Iterable, Iterator

from jobs.errors import Malformed, TooLarge, UnsupportedMedia

_LEVEL = 1  # result lines shrink to a fifth; a higher level costs twice for a tenth less
_GZIP = 16 + zlib.MAX_WBITS
_WORTH = 1024  # bytes: below that it costs more than it spares
_QUALITY = re.compile(r"\s*q\s*=\s*(0(\.[0-9]{0,3})?|1(\.0{0,3})?)\s*", re.IGNORECASE)


def wants_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding (RFC 9110, 12.5.3) names gzip, and likes it no less than the
    plain bytes. A quality that can't be read is none."""
    likes = _likes(accept_encoding)
    gzip = likes.get("gzip", likes.get("x-gzip", likes.get("*", 0.0)))
    return gzip > 0 and gzip >= likes.get("identity", 0.0)


def wants_deflate(accept_encoding: str) -> bool:
    """The same of deflate, where it is named."""
    likes = _likes(accept_encoding)
    deflate = likes.get("deflate", 0.0)
    return deflate > 0 and deflate >= likes.get("identity", 0.0)


def _likes(accept_encoding: str) -> dict[str, float]:
    return dict(filter(None, map(_coding, accept_encoding.lower().split(","))))


def _coding(text: str) -> tuple[str, float] | None:
    name, semicolon, weight = text.partition(";")
    if not semicolon:
        return name.strip(), 1.0
    quality = _QUALITY.fullmatch(weight)
    return (name.strip(), float(quality[1])) if quality else None


def gzipped(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The chunks as one gzip stream; each can be read as soon as it has arrived."""
    stream = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for chunk in chunks:
        yield stream.compress(chunk) + stream.flush(zlib.Z_SYNC_FLUSH)
    yield stream.flush()


def compressed(body: bytes, accept_encoding: str) -> tuple[bytes, str]:
    """The body as an answer carries it, and its Content-Encoding; "": as it is, since it is short
    or nobody asked."""
    if len(body) < _WORTH or not accept_encoding:
        return body, ""
    if wants_gzip(accept_encoding):
        return zlib.compress(body, _LEVEL, _GZIP), "gzip"
    if wants_deflate(accept_encoding):
        return zlib.compress(body, _LEVEL), "deflate"
    return body, ""


def expanded(body: bytes, content_encoding: str, most_bytes: int) -> bytes:
    """A body that came in gzip or deflate, as it was before. Raises UnsupportedMedia, Malformed,
    and TooLarge before it takes more memory than that."""
    encoding = content_encoding.strip().lower()
    if encoding in ("", "identity"):
        return body
    if encoding not in ("gzip", "deflate"):
        raise UnsupportedMedia(f"the Content-Encoding is {encoding!r}; use gzip or deflate")
    stream = zlib.decompressobj(_GZIP if encoding == "gzip" else zlib.MAX_WBITS)
    try:
        found = stream.decompress(body, most_bytes + 1)
    except zlib.error as error:
        raise Malformed(f"the body is not {encoding}, as its Content-Encoding says") from error
    if len(found) > most_bytes:
        raise TooLarge(f"the body has more than {most_bytes:,} bytes once it is expanded")
    if not stream.eof or stream.unused_data:
        raise Malformed(f"the body's {encoding} ends early, or goes on after its end")
    return found
