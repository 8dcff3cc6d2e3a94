"""Lines that were refused, stored as items that fail without a launch: the input of such an item
is an object that no model gets."""

import orjson

from jobs.errors import Fault

_KEY = "millrace.invalid_line"
START = f'{{"{_KEY}":'
"""Beginning of the input of such an item."""


def as_input(fault: Fault) -> bytes:
    """Returns the input that stands for a line with a fault, as JSON."""
    return orjson.dumps({_KEY: fault.message})


def message_of(input: str) -> str | None:
    """Returns the message of the fault that a stored input stands for; None for an input."""
    if not input.startswith(START):
        return None
    message = orjson.loads(input)[_KEY]
    return message if isinstance(message, str) else None
