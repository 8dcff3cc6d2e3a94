"""/openapi.json explains every operation and shows what is sent and answered; what it shows is
valid by what it says."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

import jsonschema_rs
import pytest

from api.app import create_app
from jobs.settings import Settings
from tests.support.cases import each

pytestmark = pytest.mark.heavy

DOCUMENT = create_app(Settings()).openapi()
OPERATIONS = {
    f"{method.upper()} {path}": operation
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
FILES = ("multipart/form-data", "application/octet-stream")


def contents(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, media type object) of its request body and of its good answers, files aside."""
    for kind, media in operation.get("requestBody", {}).get("content", {}).items():
        if kind not in FILES:
            yield f"request {kind}", media
    for status, answer in operation["responses"].items():
        for kind, media in answer.get("content", {}).items():
            if status.startswith("2") and kind not in FILES:
                yield f"{status} {kind}", media


def parameters(operation: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for parameter in operation.get("parameters", []):
        yield parameter["name"], parameter


def examples(described: dict[str, Any]) -> list[Any]:
    """Those of a media type or a parameter: its own, or those of its schema."""
    found = [described["example"]] if "example" in described else []
    found += [one["value"] for one in described.get("examples", {}).values()]
    return found or list(of_schema(described.get("schema", {})))


def of_schema(schema: dict[str, Any]) -> Iterator[Any]:
    if "$ref" in schema:
        schema = resolved(schema["$ref"])
    yield from schema.get("examples", [])
    if "example" in schema:
        yield schema["example"]
    for way in ("anyOf", "oneOf", "allOf"):
        for one in schema.get(way, []):
            yield from of_schema(one)


def resolved(ref: str) -> dict[str, Any]:
    found: Any = DOCUMENT
    for part in ref.removeprefix("#/").split("/"):
        found = found[part]
    return dict(found)


def faults(schema: dict[str, Any], value: Any) -> list[str]:
    whole = {**schema, "components": DOCUMENT["components"]}
    found = jsonschema_rs.Draft202012Validator(whole).iter_errors(value)
    return [f"{'.'.join(map(str, fault.instance_path))}: {fault.message}" for fault in found]


def test_an_operation_says_what_it_does_and_shows_what_is_sent_and_answered() -> None:
    open_to_all = {name for name, found in OPERATIONS.items() if not found.get("security")}
    assert open_to_all == {
        "GET /livez", "GET /readyz", "GET /health", "GET /ping", "POST /ping", "GET /version",
        "GET /v2/health/live", "GET /v2/health/ready",
    }  # fmt: skip
    for name, case in each(OPERATIONS):
        with case:
            operation = OPERATIONS[name]
            assert operation.get("summary")
            assert operation.get("description")
            assert [where for where, media in contents(operation) if not examples(media)] == []


def test_what_an_operation_shows_is_as_it_says() -> None:
    shown = [
        (f"{name}: {where}", described.get("schema", {}), example)
        for name, operation in OPERATIONS.items()
        for where, described in (*contents(operation), *parameters(operation))
        for example in examples(described)
    ]
    for (_, schema, example), case in each(shown, name=itemgetter(0)):
        with case:
            assert faults(schema, example) == []


def test_an_example_names_only_what_there_is() -> None:
    """Else one of a model that lets more through could show what is never sent."""
    closed = [
        (name, schema)
        for name, schema in DOCUMENT["components"]["schemas"].items()
        if "properties" in schema and not schema.get("additionalProperties")
    ]
    for (_, schema), case in each(closed, name=itemgetter(0)):
        with case:
            for example in schema.get("examples", []):
                assert set(example) <= set(schema["properties"])
                assert faults(schema, example) == []
