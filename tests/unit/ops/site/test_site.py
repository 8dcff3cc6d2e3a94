"""The site: its reference of the HTTP API, its navigation, and links to pages outside of it."""

import re

import pytest

from api.app import create_app
from jobs.settings import Settings
from ops.site.navigation import navigation
from ops.site.operations import FOLDER, reference
from ops.site.outside import page_inside, with_links_inside
from ops.site.schemas import in_words


@pytest.fixture(scope="module")
def document() -> dict:
    return create_app(Settings()).openapi()


@pytest.fixture(scope="module")
def pages(document: dict) -> dict[str, str]:
    return reference(document)


def test_every_operation_is_on_one_page_and_every_schema_too(document: dict, pages: dict) -> None:
    operations = [
        f"`{method.upper()} {path}`"
        for path, methods in document["paths"].items()
        for method in methods
    ]
    index = pages[f"{FOLDER}/index.md"]
    others = [text for page, text in pages.items() if not page.endswith("index.md")]
    for operation in operations:
        assert sum(len(re.findall(f"^{re.escape(operation)}", text, re.M)) for text in others) == 1
        assert f"| {operation} |" in index
    sections = re.findall(r"^## (\w+)$", pages[f"{FOLDER}/schemas.md"], re.M)
    assert sections == sorted(document["components"]["schemas"])


def test_an_operation_has_its_parameters_and_a_field_its_bounds(pages: dict) -> None:
    text = pages[f"{FOLDER}/jobs.md"].partition("## List Jobs")[0]
    assert "with a key" in text
    assert "| `Idempotency-Key` (header) | string | Chosen by the client" in text
    assert "**Body** `application/json`: [JobWithItems](schemas.md#jobwithitems)" in text
    assert '"model": "minilm"' in text
    assert "**202** `application/json`: [Job](schemas.md#job)" in text
    assert re.search(r"^Errors: 400, 401, .*507$", text, re.M)
    text = pages[f"{FOLDER}/schemas.md"].partition("## JobWithItems")[2].partition("\n## ")[0]
    model = "| `model` * | string, ≥ 1 characters, ≤ 200 characters | name, or name@version |"
    assert model in text
    assert '| `class` | `"interactive"`, `"standard"`, `"bulk"` | default `"standard"` |' in text
    assert "| `webhook` | [Webhook](schemas.md#webhook) or null |" in text


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({}, "any value"),
        ({"const": "job"}, '`"job"`'),
        ({"type": "integer", "minimum": 0, "maximum": 9}, "integer, ≥ 0, ≤ 9"),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1},
         "list of string, ≥ 1 entries"),
        ({"anyOf": [{"$ref": "#/components/schemas/Job"}, {"type": "null"}]},
         "[Job](schemas.md#job) or null"),
    ],
)  # fmt: skip
def test_a_type_is_said_in_words(schema: dict, words: str) -> None:
    assert in_words(schema) == words


def test_pages_stand_in_their_room_by_title_and_its_index_first() -> None:
    pages = {
        "index.md": "# Millrace\n",
        "how-to/clients/z.md": "# `a` is first\n",
        "how-to/clients/a.md": "# Z is last\n",
        "how-to/cookbook.md": "# Cookbook\n",
        "decisions/calls.md": "# A decision\n",
        "decisions/index.md": "# Z: all decisions\n",
    }
    rooms = {name: entries for room in navigation(pages) for name, entries in room.items()}
    assert rooms["Home"] == ["index.md"]
    clients = ["how-to/clients/z.md", "how-to/clients/a.md"]
    assert rooms["How to"] == ["how-to/cookbook.md", {"Clients": clients}]
    assert rooms["Decisions"] == ["decisions/index.md", "decisions/calls.md"]


def test_links_lead_to_pages_on_the_site_also_if_these_stand_outside_its_folder() -> None:
    text = page_inside("README.md")
    assert "](reference/client.md)" in text
    assert "](changes.md)" in text
    assert "ops/docs/" not in text
    other = "[b](openai.md#x) [c](https://example.com/README.md)"
    found = with_links_inside(f"[a](../../../../README.md#a-call) {other}", "how-to/clients/oip.md")
    assert found == f"[a](../../readme.md#a-call) {other}"
