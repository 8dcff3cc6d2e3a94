"""Fields of a JSON object that a client sent, read with their types and ranges checked, and those
that clients repeat of earlier answers, of whatever API, and that change nothing."""

from collections.abc import Mapping
from typing import Any

EMPTY: tuple[Any, ...] = (None, "", [], {})
"""Values of a field that say nothing."""
# Fields of an earlier answer, or of a part of it, that change nothing whatever text they hold.
_LABELS = frozenset({"id", "status"})
_REASONING = frozenset({"reasoning", "thinking", "redacted_thinking"})


class FieldError(ValueError):
    """A field can't be taken; the message begins with its name and says how to mend it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field} {message}")
        self.field = field


class Fields:
    """Fields of one object; null stands for an absent one."""

    def __init__(self, values: Mapping[str, Any], place: str = "") -> None:
        """place: before the names of the fields, in errors."""
        self._values, self._place = values, place

    def get(self, name: str) -> Any:
        """Returns a field as it is; None where it is absent."""
        return self._values.get(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        """Reads true or false. Raises FieldError."""
        value = self._values.get(name)
        if not isinstance(value, bool | None):
            raise FieldError(self._place + name, "must be true or false")
        return default if value is None else value

    def whole(self, name: str, least: int, most: int | None = None) -> int | None:
        """Reads a whole number. Raises FieldError."""
        value = self._values.get(name)
        if value is None:
            return None
        if type(value) is not int or value < least or (most is not None and value > most):
            span = f"of at least {least}" if most is None else f"from {least} to {most}"
            raise FieldError(self._place + name, f"must be a whole number {span}")
        return value

    def number(
        self, name: str, default: float, least: float, most: float, *, above: bool = False
    ) -> float:
        """Reads a number. above: it must be over `least`, not equal to it. Raises FieldError."""
        value = self._values.get(name)
        if value is None:
            return default
        # Not isinstance: true and false are no numbers.
        fits = type(value) in (int, float) and least <= value <= most
        if not fits or (above and value == least):
            span = f"over {least:g}, up to {most:g}" if above else f"from {least:g} to {most:g}"
            raise FieldError(self._place + name, f"must be a number {span}")
        return float(value)


def is_neutral(name: str, value: Any) -> bool:
    """Returns True for a field of an earlier message that says nothing: it is empty, it is an
    object whose fields are, or it labels the answer."""
    if isinstance(value, dict):
        return all(inner in EMPTY for inner in value.values())
    return value in EMPTY or (name in _LABELS and isinstance(value, str))


def is_empty_reasoning(part: Mapping[str, Any]) -> bool:
    """Returns True for an item, a block or a part of a message that is one of reasoning, and holds
    none."""
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in _REASONING:
        return False
    return all(is_neutral(name, value) for name, value in part.items() if name != "type")
