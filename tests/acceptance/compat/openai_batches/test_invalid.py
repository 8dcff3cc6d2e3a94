"""Batches under /v1 that are rejected, or fail by their file."""

from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from jobs import ids
from jobs.usecases import tenant_files
from ops.supervisor.platform import Platform
from tests.acceptance.compat.openai_batches import batches
from tests.acceptance.compat.openai_batches.batches import (
    counts_of,
    create,
    embedding,
    ended,
    faults,
    lines_of,
    upload,
)
from tests.support.packages import openai_of
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = batches.MODELS
WANTED: Any = {"endpoint": "/v1/embeddings", "completion_window": "24h"}


#: The lines of a file, and the code and param of the first fault of each.
WRONG: list[list[tuple[Any, str, str | None]]] = [
    [
        (embedding("a", "x"), "", None),
        (embedding("a", "x"), "duplicate_custom_id", "custom_id"),
        (b"{not json", "invalid_json_line", None),
        (embedding("c", "x", stream=True), "unsupported_parameter", "body.stream"),
        (embedding("d", "x", "minilm"), "mismatched_model", "body.model"),
        (embedding("e", "x") | {"url": "/v1/chat/completions"}, "invalid_url", "url"),
    ],
    [
        (b"[]", "invalid_json_line", None),
        (embedding("a", "x", "no-such-model"), "model_not_found", "body.model"),
        (embedding("b", "x", "no-such-model"), "model_not_found", "body.model"),
        (embedding("c", "x") | {"method": "GET"}, "invalid_method", "method"),
        (embedding("d", "x", "vectors"), "mismatched_model", "body.model"),
    ],
    [
        (embedding("a", "x") | {"method": "GET"}, "invalid_method", "method"),
        (embedding("a", "x"), "duplicate_custom_id", "custom_id"),
        (embedding("a", "") | {"url": "/v1/completions"}, "invalid_url", "url"),
        (embedding("b", ["x", ""], "vectors"), "invalid_value", "body.input"),
    ],
    [(embedding("a", "x", "echo"), "model_not_supported", "body.model")],
    [(embedding("a", "x", "no-such-model"), "model_not_found", "body.model")],
]


@pytest.mark.parametrize("lines", WRONG)
def test_wrong_lines_fail_the_batch_and_the_first_fault_of_each_is_named(
    client: OpenAI, lines: list[tuple[Any, str, str | None]]
) -> None:
    batch = ended(client, create(client, *(line for line, *_ in lines)))
    found = [(error.line, error.code, error.param) for error in faults(batch)]
    expected = [(n, code, param) for n, (_, code, param) in enumerate(lines, 1) if code]
    assert sorted(found, key=str) == expected
    assert (batch.output_file_id, all(error.message for error in faults(batch))) == (None, True)
    assert batch.failed_at is not None


def test_a_faulty_line_fails_alone_where_the_batch_says_so(client: OpenAI) -> None:
    good = [embedding("a", "x"), embedding("e", "xyz")]
    bad = [embedding("b", "x") | {"method": "GET"}, embedding("c", "x", "minilm")]
    lines = [b"{not json", good[0], *bad, embedding("d", [1, 2]), good[1], embedding("a", "y")]
    batch = ended(client, create(client, *lines, extra_body={"on_invalid": "fail_item"}))
    assert batch.status == "completed", batch.errors
    assert counts_of(batch) == (7, 2, 5)
    answers = lines_of(client, batch.output_file_id)
    assert [(one["custom_id"], one["error"]) for one in answers] == [("a", None), ("e", None)]
    failed = lines_of(client, batch.error_file_id)
    assert [one["response"] for one in failed] == [None] * 5
    said = [(one["custom_id"], one["error"]) for one in failed]
    assert [(id, one["line"], one["code"], one["param"]) for id, one in said] == [
        (None, 1, "invalid_json_line", None),
        ("b", 3, "invalid_method", "method"),
        ("c", 4, "mismatched_model", "body.model"),
        ("d", 5, "invalid_type", "body.input"),
        ("a", 7, "duplicate_custom_id", "custom_id"),
    ]
    assert said[-1][1]["message"] == "custom_id is already that of line 2"


def test_a_first_line_whose_model_is_not_there_fails_alone_too(client: OpenAI) -> None:
    lines = [embedding("a", "x", "no-such-model"), embedding("b", "x", "echo"), embedding("c", "x")]
    batch = ended(client, create(client, *lines, extra_body={"on_invalid": "fail_item"}))
    assert (batch.model, counts_of(batch)) == ("vectors", (3, 1, 2))
    codes = [one["error"]["code"] for one in lines_of(client, batch.error_file_id)]
    assert codes == ["model_not_found", "model_not_supported"]


def test_an_input_that_was_deleted_fails_the_batch(client: OpenAI, platform: Platform) -> None:
    """The bytes are gone, or the row is too by the time that it is read."""
    gone = upload(client, embedding("a", "x"))
    key = tenant_files.blob_key(ids.parse("file", gone))  # type: ignore[arg-type]
    tenant_files.blob_store(platform.settings).delete(key)
    made = client.batches.create(input_file_id=gone, **WANTED)
    assert client.files.delete(gone).deleted
    batch = ended(client, made)
    assert faults(batch)[0].code in ("no_such_file", "payload_lost")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"endpoint": "/v1/moderations"}, "endpoint"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"output_expires_after": {"anchor": "x", "seconds": 3600}}, "output_expires_after.anchor"),
        ({"extra_body": {"colour": "red"}}, "colour"),
    ],
)
def test_what_can_not_be_is_refused(client: OpenAI, more: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        create(client, embedding("a", "x"), **more)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b'{"input_file_id": "\\u0000", "endpoint": "/v1/embeddings", "completion_window": "1h"}',
        b'{"input_file_id": "\\ud800", "endpoint": "/v1/embeddings", "completion_window": "1h"}',
        b'{"input_file_id": "a", "endpoint": "\\ud800", "completion_window": "\\ud800"}',
        b'{"\\ud800": 1}',
        b'{"metadata": {"\\ud800": "\\ud800"}}',
        b"x" * (1 << 20) + b"x",
    ],
)
def test_hostile_requests_are_refused(http: httpx.Client, raw: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    found = http.post("/v1/batches", content=raw, headers=headers)
    assert found.status_code in (400, 404, 413), found.text
    assert found.json()["error"]["message"]


def test_a_batch_needs_a_file_of_its_tenants_own_that_is_for_a_batch_and_not_empty(
    client: OpenAI, platform: Platform
) -> None:
    with openai_of(platform, "other") as other:
        foreign = upload(other, embedding("a", "x"))
    wrong = dict.fromkeys((foreign, "file_01aryz6s41tsv4rrffq69g5fav", "file-abc"), "no_such_file")
    for id, code in {**wrong, upload(client): "empty_file"}.items():
        batch = ended(client, client.batches.create(input_file_id=id, **WANTED))
        assert ([error.code for error in faults(batch)], batch.input_file_id) == ([code], id)
    pictures = upload(client, b"x", purpose="vision")
    with pytest.raises(openai.BadRequestError) as caught:
        client.batches.create(input_file_id=pictures, **WANTED)
    assert (caught.value.param, caught.value.code) == ("input_file_id", "invalid_file_purpose")
