"""Integers that 64 bits don't hold. JSON allows them, and the parser rounds them to floats."""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from jobs.errors import Fault, Invalid, Malformed

LEAST, MOST = -(2**63), 2**64 - 1
"""Range of the integers that are read, stored and sent as they are."""

CODE = "big_integer"
_WHY = "is an integer that 64 bits don't hold: send it as a text"

_DIGITS = 19  # of the shortest that may be out of range
STEP = 9
"""Bytes between those that are looked at first: a run of 19 digits has two of them in turn."""
SAMPLE = b"0" * (_DIGITS // STEP)
AS_ZERO = bytes.maketrans(b"123456789", b"0" * 9)
_RUN = b"0" * _DIGITS
# A run of digits that may be one. Read by one search once any is there: a look at each from Python
# takes ten times as long where a body is full of them, as vectors are.
_INTEGER = re.compile(rb"(?<![0-9.eE+])[0-9]{19,}(?![0-9.eE])")
_BEFORE, _AFTER = b"[:,- \t\r\n", b"]},\t\r\n "  # an integer; other runs are in texts and fractions
_MOST_COMPARED = 100  # integers; of more, all are read again: that takes less time
_MOST_FAULTS = 1000


def refuse(raw: bytes | memoryview) -> None:
    """Raises Invalid with the place of each integer out of range in a JSON text.

    Reads what is no JSON without a word: its parser says so.
    """
    text = bytes(raw)
    if not _may_hold_any(text):
        return
    try:
        places = islice(_places([json.loads(text.decode())], ()), _MOST_FAULTS)
        faults = [_fault(loc[1:]) for loc in places]
    except ValueError:
        return
    except RecursionError:
        raise Malformed(f"what is nested so deeply {_WHY}") from None
    if faults:
        raise Invalid("; ".join(fault.message for fault in faults[:3]), faults=faults)


def _may_hold_any(text: bytes) -> bool:
    """Returns False where no run of digits is an integer out of range, in a text or not."""
    first = text.translate(AS_ZERO).find(_RUN)
    compared = 0
    for found in _INTEGER.finditer(text, first) if first >= 0 else ():
        start, end = found.span()
        before = text[max(start - 1, 0) : start]
        if before in _BEFORE and text[end : end + 1] in _AFTER:
            compared += 1
            most = b"%d" % (-LEAST if before == b"-" else MOST)
            if (end - start, found[0]) > (len(most), most) or compared > _MOST_COMPARED:
                return True
    return False


def _places(
    value: dict[str, Any] | list[Any], loc: tuple[str | int, ...]
) -> Iterator[tuple[str | int, ...]]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(inner, int):
            if not LEAST <= inner <= MOST:
                yield *loc, key
        elif isinstance(inner, dict | list):
            yield from _places(inner, (*loc, key))


def _fault(loc: tuple[str | int, ...]) -> Fault:
    return Fault(loc, CODE, f"{'.'.join(map(str, loc)) or 'the value'} {_WHY}")
