"""Parts and validators of a stored representation (RFC 9110, sections 13 and 14): entity tags, and
single ranges of bytes, by which a broken download goes on."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jobs.errors import RangeNotSatisfiable

_RANGE = re.compile(r"bytes\s*=\s*(\d{0,19})\s*-\s*(\d{0,19})\s*", re.IGNORECASE)
_TAGS = re.compile(r'(?:W/)?("[^"]*")')


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Some of the bytes of a representation."""

    start: int  #: first byte, from 0
    length: int  #: number of bytes
    size: int  #: bytes of the whole

    @property
    def content_range(self) -> str:
        """Value of Content-Range."""
        return f"bytes {self.start}-{self.start + self.length - 1}/{self.size}"


def entity_tag(digest: bytes) -> str:
    """Returns the strong ETag of bytes that have this digest."""
    return f'"{digest.hex()}"'


def is_known(headers: Mapping[str, str], tag: str) -> bool:
    """Returns True if If-None-Match names the tag: the client has these bytes."""
    known = headers.get("if-none-match", "")
    return known.strip() == "*" or tag in _TAGS.findall(known)


def requested_range(headers: Mapping[str, str], size: int, tag: str) -> ByteRange | None:
    """Returns the range that a request asks for; None: the whole, as where several ranges or other
    units are asked for, or If-Range names another tag or a date.

    Raises RangeNotSatisfiable where it has none of the bytes.
    """
    found = _RANGE.fullmatch(headers.get("range", "").strip())
    if found is None or headers.get("if-range", tag).strip() != tag:
        return None
    first, last = found.groups()
    if not first and not last:
        return None
    if first and last and int(last) < int(first):
        return None  # invalid, and so ignored
    start = int(first) if first else max(0, size - int(last))
    end = min(size, int(last) + 1) if first and last else size
    if start >= end:
        error = RangeNotSatisfiable(f"bytes {first}-{last} aren't there: it has {size:,} bytes")
        error.more = {"bytes": size}
        raise error
    return ByteRange(start, end - start, size)
