"""Problems of configuration: each has its place, its fault, and what is right."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import pytest
from pydantic import ConfigDict, Field, StrictBool, TypeAdapter, ValidationError

from jobs.problems import described, fits
from tests.support.cases import each


@dataclass(frozen=True)
class Part:
    """Table in a list."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    size: Annotated[int, Field(strict=True, ge=1)] = 1


@dataclass(frozen=True)
class Table:
    """Table of every kind of field."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: Annotated[str, fits(str.isalpha, "a word"), Field(description="a word, as in 'red'")]
    flag: StrictBool = False
    kind: Literal["a", "b"] = "a"
    part: Part = field(default_factory=Part)
    parts: list[Part] = field(default_factory=list)
    counts: Annotated[dict[str, int], Field(alias="class")] = field(default_factory=dict)


def problems(table: Any, path: str = "") -> list[str]:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(Table).validate_python(table)
    return described(caught.value, Table, path)


def test_problems_name_their_place_and_what_is_right_all_at_once() -> None:
    cases = [
        ({}, "name is missing: a word, as in 'red'"),
        ({"name": "4"}, "name: must be a word"),
        ({"name": 4}, "name must be a valid string"),
        ({"name": "x", "flag": 1}, "flag must be true or false"),
        ({"name": "x", "kind": "c"}, "kind must be 'a' or 'b', not 'c'"),
        ({"name": "x", "part": 1}, "part must be a table"),
        ({"name": "x", "part": {"size": 0}},
         "part.size must be greater than or equal to 1, not 0"),
        ({"name": "x", "parts": [{}, {"size": "2"}]},
         "parts number 2.size must be a valid integer"),
        ({"name": "x", "parts": [{"sise": 2}]},
         "unknown key 'sise' in parts number 1; there are: size"),
        ({"name": "x", "colour": 1},
         "unknown key 'colour'; there are: name, flag, kind, part, parts, class"),
        ({"name": "x", "class": {"k": "?"}}, "class.k must be a valid integer, not '?'"),
    ]  # fmt: skip
    for (table, problem), case in each(cases):
        with case:
            assert problems(table) == [problem]
    assert problems({"flag": 1, "kind": "c"}, "options") == [
        "options.name is missing: a word, as in 'red'",
        "options.flag must be true or false",
        "options.kind must be 'a' or 'b', not 'c'",
    ]
    [problem] = problems({"name": {"key": "sk-123"}})
    assert "sk-123" not in problem, "it may be a secret"
