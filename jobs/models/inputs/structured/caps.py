"""Bounds of schemas, expressions and grammars that clients send."""

from collections.abc import Iterable
from typing import Any

import orjson

from jobs.models.inputs.fields import FieldError

MOST_BYTES = 65_536
"""Size of a schema as JSON, of an expression, of a grammar, or of all tools of a request."""

MOST_LEVELS = 64
"""Objects and arrays within one another in a schema, as JSON."""

MOST_CHOICES = 4_096
"""Texts to choose from."""


def check_schema(place: str, schema: Any) -> None:
    """Refuses what is no schema, or one beyond the bounds. Raises FieldError."""
    if not isinstance(schema, dict):
        raise FieldError(place, "must be a JSON schema, which is an object")
    if _is_deeper(schema, MOST_LEVELS):
        raise FieldError(place, f"must have at most {MOST_LEVELS} objects within one another")
    check_size(place, schema)


def check_text(place: str, text: Any) -> None:
    """Refuses what is no text, or one beyond the bounds. Raises FieldError."""
    if not isinstance(text, str) or not text:
        raise FieldError(place, "must be a text, and not be empty")
    check_size(place, text)


def check_size(place: str, value: Any) -> None:
    """Refuses a value that has more bytes than the bound as JSON. Raises FieldError."""
    try:
        size = len(orjson.dumps(value))
    except orjson.JSONEncodeError:
        raise FieldError(place, "holds what is not valid Unicode") from None
    if size > MOST_BYTES:
        raise FieldError(place, f"has {size:,} bytes: there may be {MOST_BYTES:,}")


def _is_deeper(value: Any, levels: int) -> bool:
    level: Iterable[Any] = [value]
    for _ in range(levels + 1):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    found = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return (part for part in found if isinstance(part, dict | list))
