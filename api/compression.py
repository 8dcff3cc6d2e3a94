"""Answers in gzip, for those who ask."""

import re
import zlib
from collections.abc import Iterable, Iterator

_LEVEL = 1  # result lines shrink to a fifth; a higher level costs twice for a tenth less
_GZIP = 16 + zlib.MAX_WBITS
_QUALITY = re.compile(r"\s*q\s*=\s*(0(\.[0-9]{0,3})?|1(\.0{0,3})?)\s*", re.IGNORECASE)


def wants_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding (RFC 9110, 12.5.3) names gzip, and likes it no less than the
    plain bytes. A quality that can't be read is none."""
    likes = dict(filter(None, map(_coding, accept_encoding.lower().split(","))))
    gzip = likes.get("gzip", likes.get("x-gzip", likes.get("*", 0.0)))
    return gzip > 0 and gzip >= likes.get("identity", 0.0)


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
