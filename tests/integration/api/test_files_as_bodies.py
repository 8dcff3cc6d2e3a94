"""Files of items as they lie on a disk, sent as the body of a job."""

from codecs import BOM_UTF8

import orjson
import pytest

from tests.integration.api.conftest import People
from tests.support.stores.transactions import scalars

LINES = b'"a"\n{"input": "b"}\n'


@pytest.mark.parametrize("content", [LINES, BOM_UTF8 + LINES, LINES + b"\n", LINES + b"\r\n \n"])
def test_a_byte_order_mark_and_blank_lines_at_the_end_are_no_part_of_the_items(
    people: People, content: bytes
) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    sent = people.send("acme", "POST", "/jobs?model=echo", content=content, headers=headers)
    assert sent.status_code == 202, sent.text
    assert scalars(people.database, "SELECT input FROM items ORDER BY seq") == ['"a"', '"b"']


@pytest.mark.parametrize("items", [1, 500])
def test_a_document_may_begin_with_a_byte_order_mark(people: People, items: int) -> None:
    content = BOM_UTF8 + orjson.dumps({"model": "echo", "items": ["x"] * items})
    headers = {"Content-Type": "application/json"}
    sent = people.send("acme", "POST", "/jobs", content=content, headers=headers)
    assert sent.status_code == 202, sent.text


def test_a_blank_line_in_the_middle_is_refused_with_its_number(people: People) -> None:
    headers = {"Content-Type": "application/x-ndjson"}
    sent = people.send("acme", "POST", "/jobs?model=echo", content=b"1\n\n2\n\n", headers=headers)
    assert sent.status_code == 422
    assert [(one["line"], one["code"]) for one in sent.json()["errors"]] == [(2, "malformed")]
