"""Lines and items that were refused, stored as items that fail without a launch: the input of such
an item is an object that no model gets."""

from collections.abc import Mapping
from typing import Any

import orjson

from jobs.errors import Fault, without_surrogates

_KEY = "millrace.invalid_line"
START = f'{{"{_KEY}":'
"""Beginning of the input of such an item."""


def as_input(fault: Fault) -> bytes:
    """Returns the input that stands for a line with a fault, as JSON."""
    return orjson.dumps(value_of(fault))


def value_of(fault: Fault) -> dict[str, str]:
    """Returns the same as a JSON value."""
    return {_KEY: described(fault)}


def described(fault: Fault) -> str:
    """Returns the message of a fault, after its line and its place there."""
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault.loc)
    line = fault.place or ({} if fault.line is None else {"line": fault.line})
    before = ", ".join(filter(None, (in_words(line), place.lstrip("."))))
    message = f"{before}: {fault.message}" if before else fault.message
    return without_surrogates(message)  # it may quote one


def in_words(place: Mapping[str, Any]) -> str:
    """Returns a place in a file as words: a.csv, line 7."""
    return ", ".join(str(at) if unit == "file" else f"{unit} {at}" for unit, at in place.items())


def message_of(input: str) -> str | None:
    """Returns the message of the fault that a stored input stands for; None for an input."""
    if not input.startswith(START):
        return None
    message = orjson.loads(input)[_KEY]
    return message if isinstance(message, str) else None
