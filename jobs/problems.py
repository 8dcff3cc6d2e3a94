"""Problems of configuration, worded from pydantic's errors: place, fault, and what is right."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from pydantic import AfterValidator, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

_PHRASES = {
    r"^\w+ should ": "must ",
    r", unable to .*": "",
    r"a valid boolean": "true or false",
    r"(an instance of|a valid dictionary|a dictionary|a valid mapping)\b.*": "a table",
}
"""Regular expressions in pydantic's messages, and their words in a file of settings."""

T = TypeVar("T")


def fits(test: Callable[[Any], Any], expected: str) -> AfterValidator:
    """Returns a validator of values that must be as expected."""

    def check(value: Any) -> Any:
        """Returns the value. Raises ValueError where the test fails."""
        if not test(value):
            raise ValueError(f"must be {expected}")
        return value

    return AfterValidator(check)


def described(error: ValidationError, kind: Any, path: str = "") -> list[str]:
    """Returns a sentence for each thing that is wrong with a table of this type.

    path: dotted name of the table. A validator of a whole table may raise ValueError with a
    sentence for each conflict.
    """
    schema = TypeAdapter(kind).json_schema()
    return list(
        dict.fromkeys(text for one in error.errors() for text in _worded(one, schema, path))
    )


def _worded(error: ErrorDetails, schema: dict[str, Any], path: str) -> Iterator[str]:
    loc = [part for part in error["loc"] if part != "[key]"]
    place, code = _place(path, loc), error["type"]
    if code in ("extra_forbidden", "unexpected_keyword_argument"):
        table = _place(path, loc[:-1])
        known = ", ".join(_node(schema, loc[:-1])["properties"])
        yield f"unknown key {loc[-1]!r}{table and f' in {table}'}; there are: {known}"
    elif code == "missing":
        description = _node(schema, loc).get("description")
        yield f"{place} is missing{f': {description}' if description else ''}"
    elif code == "value_error":
        yield from (f"{place}: {text}" for text in error["ctx"]["error"].args)
    else:
        must = error["msg"]
        for pattern, words in _PHRASES.items():
            must = re.sub(pattern, words, must)
        # A value of another type may be a secret in the wrong place.
        shown = "" if code.endswith("_type") else f", not {error['input']!r}"
        yield f"{place} {must}{shown}"


def _place(path: str, loc: list[int | str]) -> str:
    for part in loc:
        if isinstance(part, int):
            path += f" number {part + 1}"
        else:
            path += f"{path and '.'}{part}"
    return path


def _node(schema: dict[str, Any], loc: list[int | str]) -> dict[str, Any]:
    """Returns the part of a JSON schema that describes this place."""
    node = schema
    for part in loc:
        node = node["items"] if isinstance(part, int) else node["properties"][part]
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rpartition("/")[2]] | node
    return node


class PolicyFormat(Generic[T]):
    """Format of a policy as a dictionary: of a dataclass whose fields have defaults.

    problems: sentences about values that pydantic takes and the policy doesn't.
    """

    def __init__(self, kind: type[T], problems: Callable[[T], Iterable[str]]) -> None:
        self._kind, self._problems = kind, problems
        self._adapter = TypeAdapter(kind)

    def parse(self, fields: Any) -> T:
        """Returns the policy with these fields; those that are left out have their defaults.

        Raises ValueError with every problem.
        """
        try:
            policy = self._adapter.validate_python(fields)
        except ValidationError as error:
            raise ValueError("; ".join(described(error, self._kind))) from None
        if problems := list(self._problems(policy)):
            raise ValueError("; ".join(problems))
        return policy

    def read(self, fields: Mapping[str, Any]) -> T:
        """Returns a policy that was stored: fields that another release added are left out. Raises
        ValueError as `parse` does."""
        known = self._kind.__dataclass_fields__  # type: ignore[attr-defined]
        return self.parse({name: value for name, value in fields.items() if name in known})

    def dump(self, policy: T) -> dict[str, Any]:
        """Returns all fields, as JSON has them."""
        fields: dict[str, Any] = self._adapter.dump_python(policy, mode="json")
        return fields
