"""Batches under /v1 that are rejected, or fail by their file."""

from typing import Any

import httpx
import openai
import pytest

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


def test_a_file_with_wrong_lines_fails_the_batch_and_names_them(client: openai.OpenAI) -> None:
    lines = [
        embedding("a", "x"),
        embedding("a", "x"),
        b"{not json",
        embedding("c", "x", stream=True),
        embedding("d", "x", "minilm"),
        embedding("e", "x") | {"url": "/v1/chat/completions"},
    ]
    batch = ended(client, create(client, *lines))
    assert (batch.status, batch.output_file_id) == ("failed", None)
    assert batch.failed_at is not None
    found = [(error.line, error.code, error.param) for error in faults(batch)]
    assert sorted(found, key=str) == [
        (2, "duplicate_custom_id", "custom_id"),
        (3, "invalid_json_line", None),
        (4, "unsupported_parameter", "body.stream"),
        (5, "mismatched_model", "body.model"),
        (6, "invalid_url", "url"),
    ]
    assert all(error.message for error in faults(batch))


def test_each_lines_first_fault_is_named_whatever_came_before(client: openai.OpenAI) -> None:
    lines = [
        b"[]",
        embedding("a", "x", "no-such-model"),
        embedding("b", "x", "no-such-model"),
        embedding("c", "x") | {"method": "GET"},
        embedding("d", "x", "vectors"),
    ]
    assert codes(client, *lines) == [
        (1, "invalid_json_line"),
        (2, "model_not_found"),
        (3, "model_not_found"),
        (4, "invalid_method"),
        (5, "mismatched_model"),
    ]
    lines = [
        embedding("a", "x") | {"method": "GET"},
        embedding("a", "x"),
        embedding("a", "") | {"url": "/v1/completions"},
        embedding("b", ["x", ""], "vectors"),
    ]
    assert codes(client, *lines) == [
        (1, "invalid_method"),
        (2, "duplicate_custom_id"),
        (3, "invalid_url"),
        (4, "invalid_value"),
    ]


def codes(client: openai.OpenAI, *lines: Any) -> list[tuple[Any, Any]]:
    return [(error.line, error.code) for error in faults(ended(client, create(client, *lines)))]


def test_a_faulty_line_fails_alone_where_the_batch_says_so(client: openai.OpenAI) -> None:
    lines = [
        b"{not json",
        embedding("a", "x"),
        embedding("b", "x") | {"method": "GET"},
        embedding("c", "x", "minilm"),
        embedding("d", [1, 2]),
        embedding("e", "xyz"),
    ]
    batch = ended(client, create(client, *lines, extra_body={"on_invalid": "fail_item"}))
    assert batch.status == "completed", batch.errors
    assert counts_of(batch) == (6, 2, 4)
    answers = lines_of(client, batch.output_file_id)
    assert [(one["custom_id"], one["error"]) for one in answers] == [("a", None), ("e", None)]
    failed = lines_of(client, batch.error_file_id)
    assert [one["response"] for one in failed] == [None] * 4
    assert [
        (one["custom_id"], one["error"]["line"], one["error"]["code"], one["error"]["param"])
        for one in failed
    ] == [
        (None, 1, "invalid_json_line", None),
        ("b", 3, "invalid_method", "method"),
        ("c", 4, "mismatched_model", "body.model"),
        ("d", 5, "invalid_type", "body.input"),
    ]


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([embedding("a", "x", "no-such-model")], "model_not_found"),
        ([embedding("a", "x", "echo")], "model_not_supported"),
        ([], "empty_file"),
    ],
)
def test_an_input_that_is_none_fails_the_batch(
    client: openai.OpenAI, lines: list[Any], code: str
) -> None:
    batch = ended(client, create(client, *lines))
    assert [error.code for error in faults(batch)] == [code]


def test_an_input_that_was_deleted_fails_the_batch_and_says_so(
    client: openai.OpenAI, platform: Platform
) -> None:
    """The bytes are gone, or the row is too by the time that it is read."""
    gone = upload(client, embedding("a", "x"))
    tenant_files.blob_store(platform.settings).delete(
        tenant_files.blob_key(ids.parse("file", gone))
    )  # type: ignore[arg-type]
    made = client.batches.create(
        input_file_id=gone, endpoint="/v1/embeddings", completion_window="24h"
    )
    assert client.files.delete(gone).deleted
    batch = ended(client, made)
    assert faults(batch)[0].code in ("no_such_file", "payload_lost")


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"completion_window": "soon"}, "completion_window"),
        ({"completion_window": "0h"}, "completion_window"),
        ({"endpoint": "/v1/responses"}, "endpoint"),
        ({"metadata": {"k": "v" * 513}}, "metadata.k"),
        ({"output_expires_after": {"anchor": "x", "seconds": 3600}}, "output_expires_after.anchor"),
        ({"extra_body": {"colour": "red"}}, "colour"),
    ],
)
def test_what_can_not_be_asked_is_refused_at_once(
    client: openai.OpenAI, more: dict[str, Any], param: str
) -> None:
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
def test_hostile_requests_are_refused(native: httpx.Client, raw: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    found = native.post("/v1/batches", content=raw, headers=headers)
    assert found.status_code in (400, 404, 413), found.text
    assert found.json()["error"]["message"]


def test_a_batch_needs_a_file_of_its_tenants_own_and_for_a_batch(
    client: openai.OpenAI, platform: Platform
) -> None:
    with openai_of(platform, "other") as other:
        foreign = upload(other, embedding("a", "x"))
    wanted: Any = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
    for id in (foreign, "file_01aryz6s41tsv4rrffq69g5fav", "file-abc"):
        batch = ended(client, client.batches.create(input_file_id=id, **wanted))
        assert (batch.status, batch.input_file_id) == ("failed", id)
        assert [error.code for error in faults(batch)] == ["no_such_file"]
    pictures = upload(client, b"x", purpose="vision")
    with pytest.raises(openai.BadRequestError) as caught:
        client.batches.create(input_file_id=pictures, **wanted)
    assert (caught.value.param, caught.value.code) == ("input_file_id", "invalid_file_purpose")


def test_an_ended_batch_can_not_be_cancelled(client: openai.OpenAI) -> None:
    batch = ended(client, create(client, embedding("a", "x")))
    with pytest.raises(openai.ConflictError, match="status 'completed'") as caught:
        client.batches.cancel(batch.id)
    assert caught.value.response.headers["X-Should-Retry"] == "false"
    assert client.batches.retrieve(batch.id).status == "completed"
