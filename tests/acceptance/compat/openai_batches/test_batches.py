"""Batches under /v1, as the `openai` package hands them in, looks at them and fetches them."""

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types.chat import ChatCompletion
from openai.types.create_embedding_response import CreateEmbeddingResponse

from tests.acceptance.compat.openai_batches import batches
from tests.acceptance.compat.openai_batches.batches import (
    check,
    counts_of,
    create,
    embedding,
    ended,
    lines_of,
    talk,
)
from tests.support.platforms import CHATTING
from tests.support.wait import eventually

PLATFORM = CHATTING
MODELS = batches.MODELS


def test_texts_become_embeddings(client: openai.OpenAI, native: httpx.Client) -> None:
    asked: Any = {"anchor": "created_at", "seconds": 3600}
    made = create(
        client,
        *(embedding(f"text-{n}", f"text {n}", "minilm") for n in range(5)),
        metadata={"kind": "test"},
        output_expires_after=asked,
    )
    assert (made.status, made.object, made.metadata) == ("validating", "batch", {"kind": "test"})
    assert made.expires_at == made.created_at + 86_400
    assert counts_of(made) == (0, 0, 0)
    batch = ended(client, made)
    assert (batch.status, batch.error_file_id, batch.errors) == ("completed", None, None)
    asked = (batch.model, batch.endpoint, batch.completion_window)
    assert asked == ("minilm", "/v1/embeddings", "24h")
    assert counts_of(batch) == (5, 5, 0)
    for at in (batch.in_progress_at, batch.finalizing_at, batch.completed_at):
        assert at is not None
        assert batch.created_at <= at
    assert batch.usage is not None
    found = lines_of(client, batch.output_file_id)
    assert [line["custom_id"] for line in found] == [f"text-{n}" for n in range(5)]
    assert len({line["id"] for line in found}) == 5
    answers = [CreateEmbeddingResponse.model_validate(line["response"]["body"]) for line in found]
    assert {answer.model for answer in answers} == {"minilm"}
    assert sum(answer.usage.total_tokens for answer in answers) == batch.usage.total_tokens > 5
    [one] = (native.post("/infer", json={"model": "minilm", "input": "text 3"}).json()["output"],)
    assert answers[3].data[0].embedding == pytest.approx(one, abs=1e-5)
    output = client.files.retrieve(str(batch.output_file_id))
    assert output.purpose == "batch_output"
    assert output.expires_at == output.created_at + 3600


def test_base64_is_what_who_asks_for_it_gets(client: openai.OpenAI) -> None:
    lines = [embedding("a", "abc"), embedding("b", "abc", encoding_format="base64")]
    found = lines_of(client, ended(client, create(client, *lines)).output_file_id)
    assert [line["response"]["body"]["data"][0]["embedding"] for line in found] == [
        [3.0, 0.5],
        "AABAQAAAAD8=",
    ]


def test_conversations_become_completions(client: openai.OpenAI) -> None:
    batch = ended(client, create(client, talk("a"), talk("b"), endpoint="/v1/chat/completions"))
    assert batch.status == "completed"
    for line in lines_of(client, batch.output_file_id):
        answer = ChatCompletion.model_validate(line["response"]["body"], strict=True)
        assert "hello" in str(answer.choices[0].message.content)


def test_what_fails_is_in_a_file_of_its_own(client: openai.OpenAI) -> None:
    lines = [embedding("good", "x"), embedding("bad", "fail"), embedding("fine", "xx")]
    batch = ended(client, create(client, *lines))
    assert batch.status == "completed"
    assert counts_of(batch) == (3, 2, 1)
    good = lines_of(client, batch.output_file_id)
    assert [line["custom_id"] for line in good] == ["good", "fine"]
    [line] = lines_of(client, batch.error_file_id)
    assert (line["custom_id"], line["response"]["status_code"]) == ("bad", 500)
    assert "told to fail" in line["response"]["body"]["error"]["message"]


def test_a_cancelled_batch_keeps_what_it_has(client: openai.OpenAI) -> None:
    lines = [embedding(f"fast-{n}", "x") for n in range(20)]
    lines += [embedding(f"slow-{n}", "wait") for n in range(200)]
    made = create(client, *lines)

    eventually(lambda: counts_of(client.batches.retrieve(made.id))[1] >= 20)
    said = client.batches.cancel(made.id)
    check(said)
    assert said.status in ("cancelling", "cancelled")
    assert said.cancelling_at is not None
    batch = ended(client, made)
    assert batch.status == "cancelled"
    with pytest.raises(openai.ConflictError, match="status 'cancelled'"):
        client.batches.cancel(made.id)
    assert batch.cancelled_at is not None
    assert batch.cancelling_at is not None
    assert batch.cancelled_at >= batch.cancelling_at
    done, undone = (lines_of(client, id) for id in (batch.output_file_id, batch.error_file_id))
    assert len(done) >= 20
    assert {line["error"]["code"] for line in undone} == {"batch_cancelled"}
    found = {line["custom_id"] for line in (*done, *undone)}
    assert found == {line["custom_id"] for line in lines}
    assert len(done) + len(undone) == len(lines)


def test_a_batch_that_is_not_done_in_its_window_expires(client: openai.OpenAI) -> None:
    lines = [embedding("fast", "x"), *(embedding(f"slow-{n}", "wait") for n in range(100))]
    made = create(client, *lines, completion_window="3s")
    assert made.expires_at is not None
    assert made.expires_at - made.created_at in (3, 4)  # each rounded down
    batch = ended(client, made)
    assert batch.status == "expired"
    assert batch.expired_at is not None
    undone = lines_of(client, batch.error_file_id)
    assert {line["error"]["code"] for line in undone} == {"batch_expired"}
    assert {line["response"] for line in undone} == {None}
    done = lines_of(client, batch.output_file_id) if batch.output_file_id else []
    assert len(done) + len(undone) == len(lines)


@pytest.mark.nightly
def test_fifty_thousand_lines(client: openai.OpenAI) -> None:
    said = "x" * 600
    made = create(
        client, *(talk(f"line-{n}", said) for n in range(50_000)), endpoint="/v1/chat/completions"
    )
    batch = ended(client, made)
    assert batch.status == "completed"
    assert counts_of(batch) == (50_000, 50_000, 0)
    with client.files.with_streaming_response.content(str(batch.output_file_id)) as answer:
        names = [json.loads(line)["custom_id"] for line in answer.iter_lines()]
    assert names == [f"line-{n}" for n in range(50_000)]
