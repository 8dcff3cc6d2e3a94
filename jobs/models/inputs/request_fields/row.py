"""Row of the table of request fields."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Route = Literal[
    "chat", "completions", "responses", "messages", "embeddings", "tokenize", "detokenize"
]
ROUTES: tuple[Route, ...] = get_args(Route)
Use = Literal["call", "input", "label", "refused"]
"""Part of the call, not of its input; part of the input, whose reader checks it; without an effect
on the output; or refused, unless its value changes nothing."""
Kind = Literal["any", "text", "true or false", "whole number", "number", "object", "list"]

_TYPES: Mapping[Kind, tuple[type, ...]] = {
    "any": (),
    "text": (str,),
    "true or false": (bool,),
    "whole number": (int,),
    "number": (int, float),
    "object": (dict,),
    "list": (list,),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One field, on the routes where it means the same."""

    name: str  #: its path: a dot leads into an object, [] into a list
    routes: tuple[Route, ...]
    use: Use
    kind: Kind
    does: str  #: what it does, or what would be asked for by it
    neutral: tuple[Any, ...] = ()  #: values by which the answer is as without the field

    def fits(self, value: Any) -> bool:
        """Returns True for a value of its kind; true and false are no numbers."""
        return type(value) in _TYPES[self.kind] or self.kind == "any"

    def is_neutral(self, value: Any) -> bool:
        """Returns True for a value that changes nothing."""
        value = _without_nulls(value)
        # true == 1, but the two are not the same in JSON.
        return any(
            isinstance(one, bool) == isinstance(value, bool) and one == value
            for one in self.neutral
        )


def _without_nulls(value: Any) -> Any:
    """Returns an object without its fields that are null, which stand for absent ones."""
    if not isinstance(value, dict):
        return value
    return {name: inner for name, inner in value.items() if inner is not None}


def of_call(name: str, routes: str, kind: Kind, does: str, *neutral: Any) -> Row:
    """Returns the row of a field of the call, which is no part of its input."""
    return Row(name, _routes(routes), "call", kind, does, neutral)


def of_input(name: str, routes: str, kind: Kind, does: str, *neutral: Any) -> Row:
    """Returns the row of a field of the input."""
    return Row(name, _routes(routes), "input", kind, does, neutral)


def label(name: str, routes: str, kind: Kind, does: str) -> Row:
    """Returns the row of a field without an effect on the output."""
    return Row(name, _routes(routes), "label", kind, does)


def refused(name: str, routes: str, does: str, *neutral: Any) -> Row:
    """Returns the row of a field that is not served."""
    return Row(name, _routes(routes), "refused", "any", does, neutral)


def _routes(names: str) -> tuple[Route, ...]:
    wanted = names.split()
    return tuple(route for route in ROUTES if route in wanted)
