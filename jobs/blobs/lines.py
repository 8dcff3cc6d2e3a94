"""Result lines: replaces references by their payloads, and vectors by their JSON; escapes what
readers take for the end of a line."""

import logging
import re
from collections.abc import Generator, Iterable, Iterator

from jobs import vectors
from jobs.blobs.payloads import REFERENCE, Payloads
from jobs.errors import Unreadable

_log = logging.getLogger(__name__)

# Inside a JSON string each quote has a backslash before it, and no JSON value begins with an @ or
# a #: no value of a client or an engine can look like this.
_MARK = b'","output":@'
_SPOT = re.compile(rf'"outcome":"succeeded","output":({REFERENCE}),"error":null'.encode())
_OUTPUT, _VECTOR_MARK = b'","output":', vectors.MARK.encode()
_VECTOR = _OUTPUT + _VECTOR_MARK
_HEAD = b'"outcome":"succeeded","output":'
_TAIL = b',"error":null'


def one_line(json: bytes) -> bytes:
    """Escapes U+2028, U+2029 and U+0085 in JSON texts, which have them in strings alone.

    For each of them `str.splitlines` begins a new line, and so do readers that use it.
    """
    if json.isascii():  # takes no time; nearly all are
        return json
    escaped = json.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    return escaped.replace(b"\xc2\x85", b"\\u0085")


def resolve_lines(payloads: Payloads, chunks: Iterable[bytes]) -> Generator[bytes, None, None]:
    """Yields chunks of NDJSON result lines, as `one_line` has them, with vectors as JSON, and with
    their payloads, one of these in memory at a time.

    A payload that is lost or corrupt makes its line `failed`, with an error: readers can't take it
    for an output. Raises BlobStoreUnavailable, which ends the response visibly.
    """
    for stored in chunks:
        chunk = one_line(stored)
        if b"#" in chunk and _VECTOR in chunk:
            chunk = b"".join(_with_json(chunk))
        if b"@" not in chunk or _MARK not in chunk:  # the first takes no time at all
            yield chunk
        else:
            yield from _spliced(payloads, chunk)


def _with_json(chunk: bytes) -> Iterator[bytes]:
    """Yields the pieces of a chunk with vectors as JSON. Cut by searches for constants: a pattern
    that matches thousands of digits takes longer than their JSON."""
    head, *rest = chunk.split(_VECTOR)
    yield head
    for piece in rest:
        end = piece.index(b",")
        yield _OUTPUT
        yield vectors.as_json(_VECTOR_MARK + piece[:end])
        yield piece[end:]


def _spliced(payloads: Payloads, chunk: bytes) -> Iterator[bytes]:
    done = 0
    for spot in _SPOT.finditer(chunk):
        yield chunk[done : spot.start()]
        try:
            payload = payloads.read(spot[1].decode())
        except Unreadable as error:
            _log.error("a result can't be read: %s", error)
            yield b'"outcome":"failed","output":null,"error":' + error.as_result().encode()
        else:
            yield _HEAD
            yield one_line(payload)
            yield _TAIL
        done = spot.end()
    yield chunk[done:]
