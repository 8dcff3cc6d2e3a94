"""Constraints of a text, by the names of OpenAI and of vLLM."""

from typing import Any

import orjson
import pytest

from jobs.models.inputs.fields import FieldError, Fields
from jobs.models.inputs.structured.caps import MOST_BYTES, MOST_LEVELS
from jobs.models.inputs.structured.constraint import Constraint, read_constraint
from tests.support.cases import each

SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}}


def read(**fields: Any) -> Constraint | None:
    return read_constraint(Fields(fields))


def by_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, **more}}


def refused_at(**fields: Any) -> str:
    with pytest.raises(FieldError) as raised:
        read(**fields)
    return raised.value.field


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    return schema


def test_nothing_is_no_constraint() -> None:
    cases = [
        {},
        {"response_format": None},
        {"response_format": {"type": "text"}},
        {"structured_outputs": {}},
        {"structured_outputs": {"regex": None, "json_object": False}},
        {"regex": None, "guided_json": None},
    ]
    for fields, case in each(cases):
        with case:
            assert read(**fields) is None


def test_a_schema_of_openai_is_read() -> None:
    place = "response_format.json_schema.schema"
    strict = read(response_format=by_schema(SCHEMA, strict=True, description="of it"))
    assert strict == Constraint("json", SCHEMA, place, True, "a")
    assert read(response_format=by_schema(SCHEMA)) == Constraint("json", SCHEMA, place, False, "a")


def test_every_name_of_a_constraint_is_read() -> None:
    cases = [
        ({"response_format": {"type": "json_object"}}, "json", {"type": "object"},
         "response_format"),
        ({"regex": "a+"}, "regex", "a+", "regex"),
        ({"choice": ["a", "b"]}, "choice", ["a", "b"], "choice"),
        ({"grammar": "start: x"}, "grammar", "start: x", "grammar"),
        ({"guided_regex": "a+"}, "regex", "a+", "guided_regex"),
        ({"guided_json": SCHEMA}, "json", SCHEMA, "guided_json"),
        ({"guided_json": orjson.dumps(SCHEMA).decode()}, "json", SCHEMA, "guided_json"),
        ({"structured_outputs": {"json": SCHEMA}}, "json", SCHEMA, "structured_outputs.json"),
        ({"structured_outputs": {"json_object": True}}, "json", {"type": "object"},
         "structured_outputs.json"),
        ({"structured_outputs": {"choice": ["x"], "disable_fallback": False}}, "choice", ["x"],
         "structured_outputs.choice"),
    ]  # fmt: skip
    for (fields, kind, value, place), case in each(cases):
        with case:
            found = read(**fields)
            assert found
            assert (found.kind, found.value, found.field) == (kind, value, place)


def test_what_is_none_is_refused_with_its_place() -> None:
    cases = [
        ({"response_format": "json"}, "response_format.type"),
        ({"response_format": {"type": "json"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": by_schema(None)}, "response_format.json_schema.schema"),
        ({"response_format": by_schema(SCHEMA, strict="yes")},
         "response_format.json_schema.strict"),
        ({"response_format": by_schema(SCHEMA, name="a b")}, "response_format.json_schema.name"),
        ({"response_format": by_schema(SCHEMA, x=1)}, "response_format.json_schema.x"),
        ({"regex": ""}, "regex"),
        ({"regex": 5}, "regex"),
        ({"regex": "\ud800"}, "regex"),
        ({"choice": []}, "choice"),
        ({"choice": ["a", ""]}, "choice"),
        ({"choice": "a"}, "choice"),
        ({"grammar": ["x"]}, "grammar"),
        ({"guided_json": "{"}, "guided_json"),
        ({"guided_json": "[]"}, "guided_json"),
        ({"structured_outputs": []}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
        ({"regex": "a", "choice": ["a"]}, "regex"),
        ({"regex": "a", "response_format": {"type": "json_object"}}, "response_format"),
    ]  # fmt: skip
    for (fields, place), case in each(cases):
        with case:
            assert refused_at(**fields) == place


def test_what_is_beyond_the_bounds_is_refused() -> None:
    cases = [
        {"regex": "a" * MOST_BYTES},
        {"grammar": "a" * MOST_BYTES},
        {"choice": ["a" * 64] * 1000},
        {"guided_json": {"enum": ["a" * MOST_BYTES]}},
        {"guided_json": nested(MOST_LEVELS + 1)},
        {"guided_json": nested(100_000)},
    ]
    for fields, case in each(cases):
        with case:
            assert refused_at(**fields) == next(iter(fields))


def test_a_schema_may_be_as_deep_as_the_bound() -> None:
    assert read(guided_json=nested(MOST_LEVELS - 1))


def test_another_server_gets_it_as_it_takes_it() -> None:
    cases = [
        ({"regex": "a"}, {"structured_outputs": {"regex": "a"}}),
        ({"guided_choice": ["a"]}, {"structured_outputs": {"choice": ["a"]}}),
        ({"structured_outputs": {"json_object": True}},
         {"response_format": {"type": "json_object"}}),
        ({"response_format": by_schema(SCHEMA, strict=True)},
         {"response_format": by_schema(SCHEMA, strict=True)}),
        ({"guided_json": SCHEMA},
         {"response_format": {"type": "json_schema", "json_schema": {
             "name": "answer", "schema": SCHEMA, "strict": False}}}),
    ]  # fmt: skip
    for (fields, sent), case in each(cases):
        with case:
            found = read(**fields)
            assert found
            assert found.as_upstream == sent
