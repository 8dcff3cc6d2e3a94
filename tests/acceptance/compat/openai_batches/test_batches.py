"""Batches under /v1, as the `openai` package hands them in, looks at them and fetches them."""

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion
from openai.types.create_embedding_response import CreateEmbeddingResponse
from sqlalchemy import text

from jobs import ids
from ops.supervisor.platform import Platform
from tests.acceptance.compat.openai_batches import batches
from tests.acceptance.compat.openai_batches.batches import (
    ENDED,
    check,
    counts_of,
    create,
    embedding,
    ended,
    lines_of,
    native_of,
    talk,
    upload,
)
from tests.support.jobs import assert_invariants
from tests.support.packages import openai_batch, openai_of, openai_with
from tests.support.platforms import CHATTING, transaction
from tests.support.servers.receiver import Receiver
from tests.support.wait import PATIENCE_S, eventually

PLATFORM = CHATTING
MODELS = batches.MODELS


def test_texts_become_embeddings(client: OpenAI, http: httpx.Client) -> None:
    asked: Any = {"anchor": "created_at", "seconds": 3600}
    lines = [embedding(f"text-{n}", f"text {n}", "minilm") for n in range(5)]
    made = create(client, *lines, metadata={"kind": "test"}, output_expires_after=asked)
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
    one = http.post("/infer", json={"model": "minilm", "input": "text 3"}).json()["output"]
    assert answers[3].data[0].embedding == pytest.approx(one, abs=1e-5)
    output = client.files.retrieve(str(batch.output_file_id))
    assert output.purpose == "batch_output"
    assert output.expires_at == output.created_at + 3600


def test_several_texts_of_a_line_are_several_embeddings(client: OpenAI) -> None:
    many = {"input": ["one", "two"]}
    lines = [many, {"input": "one"}, {"input": "two"}, {"input": "one", "dimensions": 64}]
    lines.append(many | {"encoding_format": "base64"})
    output, _ = openai_batch(client, "/v1/embeddings", *({"model": "minilm"} | x for x in lines))
    *plain, packed = (line["response"]["body"] for line in output)
    both, one, two, short = map(CreateEmbeddingResponse.model_validate, plain)
    assert [found.index for found in both.data] == [0, 1]
    assert both.usage.total_tokens == one.usage.total_tokens + two.usage.total_tokens
    for found, alone, other in zip(both.data, (one, two), packed["data"], strict=True):
        assert found.embedding == pytest.approx(alone.data[0].embedding, abs=1e-5)
        floats = np.frombuffer(base64.b64decode(other["embedding"]), "<f4")
        assert floats.tolist() == pytest.approx(found.embedding, abs=1e-5)
    cut = short.data[0].embedding
    assert (len(cut), sum(x * x for x in cut)) == (64, pytest.approx(1.0, abs=1e-5))


def test_conversations_become_completions(client: OpenAI) -> None:
    batch = ended(client, create(client, talk("a"), talk("b"), endpoint="/v1/chat/completions"))
    assert batch.status == "completed"
    with pytest.raises(openai.ConflictError, match="status 'completed'") as caught:
        client.batches.cancel(batch.id)  # it has ended
    assert caught.value.response.headers["X-Should-Retry"] == "false"
    assert client.batches.retrieve(batch.id).status == "completed"
    for line in lines_of(client, batch.output_file_id):
        answer = ChatCompletion.model_validate(line["response"]["body"], strict=True)
        assert "hello" in str(answer.choices[0].message.content)


def test_an_answer_is_one_line_for_readers_that_know_the_line_ends_of_unicode(
    client: OpenAI,
) -> None:
    said = "a\u2028b\u2029c\x85d"
    batch = ended(client, create(client, talk(said, said), endpoint="/v1/chat/completions"))
    assert batch.output_file_id is not None
    [line] = client.files.content(batch.output_file_id).iter_lines()  # by str.splitlines
    found = json.loads(line)
    assert found["custom_id"] == said
    assert said in found["response"]["body"]["choices"][0]["message"]["content"]


def test_what_fails_is_in_a_file_of_its_own(client: OpenAI) -> None:
    lines = [embedding("good", "x"), embedding("bad", "fail"), embedding("fine", "xx")]
    batch = ended(client, create(client, *lines))
    assert batch.status == "completed"
    assert counts_of(batch) == (3, 2, 1)
    good = lines_of(client, batch.output_file_id)
    assert [line["custom_id"] for line in good] == ["good", "fine"]
    [line] = lines_of(client, batch.error_file_id)
    assert (line["custom_id"], line["response"]["status_code"]) == ("bad", 500)
    assert "told to fail" in line["response"]["body"]["error"]["message"]


def test_a_cancelled_batch_keeps_what_it_has(client: OpenAI) -> None:
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
    done, undone = (lines_of(client, id) for id in (batch.output_file_id, batch.error_file_id))
    assert len(done) >= 20
    assert {line["error"]["code"] for line in undone} == {"batch_cancelled"}
    found = {line["custom_id"] for line in (*done, *undone)}
    assert found == {line["custom_id"] for line in lines}
    assert len(done) + len(undone) == len(lines)


def test_a_batch_that_is_not_done_in_its_window_expires(client: OpenAI) -> None:
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
def test_fifty_thousand_lines(client: OpenAI) -> None:
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


def test_lists_go_page_by_page_newest_first(platform: Platform) -> None:
    with openai_of(platform, "lists") as client:
        assert client.batches.list().data == []
        made = [create(client, embedding("a", "x")).id for _ in range(5)]
        with native_of(platform, client) as http:
            job = http.post("/jobs", json={"model": "echo", "items": ["x"]}).json()["id"]
        assert [batch.id for batch in client.batches.list(limit=2)] == made[::-1]
        assert client.batches.list(after=made[1]).data[0].id == made[0]
        with pytest.raises(openai.NotFoundError):  # it came by another door
            client.batches.retrieve(job)


def test_a_batch_is_a_job_under_either_name(client: OpenAI, http: httpx.Client) -> None:
    """Native routes with the same id do what the package has no method for."""
    lines = [embedding(f"n-{n}", "wait") for n in range(200)]
    made = create(client, *lines)
    job_id = made.id.replace("batch_", "job_")
    for id in (made.id, job_id):
        assert client.batches.retrieve(id).id == made.id
        assert http.get(f"/jobs/{id}").json()["id"] == job_id
    eventually(lambda: client.batches.retrieve(made.id).status == "in_progress")
    assert http.post(f"/jobs/{made.id}/pause").json()["state"] == "paused"
    assert client.batches.retrieve(made.id).status == "in_progress"
    assert http.post(f"/jobs/{made.id}/resume").status_code == 200

    def live() -> bool:
        got = http.get(f"/jobs/{made.id}/results")
        first = json.loads(got.text.splitlines()[0]) if got.text else {}
        return bool(first.get("custom_id") == "n-0" and first["output"] == [4.0, 0.5])

    eventually(live)
    assert http.post(f"/jobs/{made.id}/cancel").status_code == 200
    assert ended(client, made).status == "cancelled"
    http.post(f"/jobs/{made.id}/retry").raise_for_status()
    again = client.batches.retrieve(made.id)
    assert again.status == "in_progress"
    assert (again.output_file_id, again.cancelled_at, again.cancelling_at) == (None, None, None)
    assert http.post(f"/jobs/{made.id}/cancel").status_code == 200
    assert ended(client, made).status == "cancelled"
    assert http.delete(f"/jobs/{made.id}").status_code == 204
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve(made.id)


def test_a_request_that_is_tried_again_makes_one_batch(platform: Platform, client: OpenAI) -> None:
    """The package's retries have no key: it says in a header that they are."""
    wanted: Any = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
    wanted["input_file_id"] = upload(client, embedding("a", "x"))
    first = client.batches.create(**wanted)
    again = client.batches.create(**wanted, extra_headers={"x-stainless-retry-count": "1"})
    assert again.id == first.id
    meant = client.batches.create(**wanted)
    assert meant.id != first.id
    key = {"Idempotency-Key": f'"{ids.new()}"'}
    keyed = [client.batches.create(**wanted, extra_headers=key) for _ in range(2)]
    assert keyed[0] == keyed[1]
    assert keyed[0].id not in (first.id, meant.id)
    with pytest.raises(openai.UnprocessableEntityError) as other:
        client.batches.create(**wanted | {"completion_window": "1h"}, extra_headers=key)
    assert other.value.code == "idempotency_key_reused"


def test_the_same_file_uploaded_again_is_the_same_request(
    client: OpenAI, http: httpx.Client
) -> None:
    key = {"Idempotency-Key": f'"{ids.new()}"'}
    asked: Any = {"endpoint": "/v1/embeddings", "completion_window": "24h", "extra_headers": key}
    first, again = (upload(client, embedding("a", "x")) for _ in range(2))
    assert first != again
    made = client.batches.create(input_file_id=first, **asked)
    assert client.batches.create(input_file_id=again, **asked).id == made.id
    with pytest.raises(openai.UnprocessableEntityError):
        client.batches.create(input_file_id=upload(client, embedding("a", "y")), **asked)
    client.files.delete(first)
    assert client.batches.create(input_file_id=first, **asked).id == made.id
    ended(client, made)
    http.delete(f"/jobs/{made.id}").raise_for_status()
    with pytest.raises(openai.APIStatusError, match="was deleted") as caught:
        client.batches.create(input_file_id=again, **asked)
    assert (caught.value.status_code, caught.value.code) == (410, "job_deleted")


def test_retries_that_race_make_one_batch(platform: Platform, client: OpenAI) -> None:
    id = upload(client, embedding("a", "x"))
    together = threading.Barrier(8)

    def ask(n: int) -> str:
        with openai_with(platform, client.api_key) as own:
            together.wait(PATIENCE_S)
            more = {"x-stainless-retry-count": str(n)}
            wanted: Any = {"endpoint": "/v1/embeddings", "completion_window": "2h"}
            return own.batches.create(input_file_id=id, **wanted, extra_headers=more).id

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(ask, range(1, 9)))
    assert len(made) == 1


def test_the_end_of_a_batch_is_told_as_openai_does(platform: Platform, receiver: Receiver) -> None:
    with openai_of(platform, "told") as client, native_of(platform, client) as http:
        secret = http.get("/webhooks/secret").json()["secret"]
        http.put("/webhooks/endpoint", json={"url": receiver.url}).raise_for_status()
        good = create(client, embedding("a", "x"))
        bad = create(client, b"no line")
        slow = [embedding(str(n), "wait") for n in range(99)]
        late = create(client, *slow, completion_window="2s")
        stopped = create(client, *slow)
        eventually(lambda: client.batches.retrieve(stopped.id).status == "in_progress")
        client.batches.cancel(stopped.id)
        eventually(lambda: len(receiver.received) >= 4)
        http.put("/webhooks/endpoint", json={"url": None}).raise_for_status()
        events = [
            client.webhooks.unwrap(one.body, one.headers, secret=secret)
            for one in receiver.received
        ]
        told = {event.data.id: event.type for event in events if "batch" in event.type}  # type: ignore[union-attr]
        assert told == {
            good.id: "batch.completed",
            bad.id: "batch.failed",
            late.id: "batch.expired",
            stopped.id: "batch.cancelled",
        }
        assert len({event.id for event in events}) == 4
        assert all(event.id.startswith("evt_") and event.object == "event" for event in events)
        for id in (good.id, late.id, stopped.id):  # the files are there by then
            assert client.batches.retrieve(id).status in ENDED
        [one, *_] = receiver.received
        wrong = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
        with pytest.raises(openai.InvalidWebhookSignatureError):
            client.webhooks.unwrap(one.body, one.headers, secret=wrong)


def test_nothing_is_left_open(platform: Platform, client: OpenAI, http: httpx.Client) -> None:
    for lines in ([embedding("a", "x"), embedding("b", "fail")], [b"no line"]):
        ended(client, create(client, *lines))
    tenant = http.get("/usage", params={"by": "tenant"}).json()["data"][0]["tenant"]
    unfinished = text("""
        SELECT count(*) FROM jobs LEFT JOIN transfers ON transfers.job_id = jobs.id
        WHERE jobs.tenant_id = :tenant AND dialect = 'openai' AND (
            transfers.job_id IS NOT NULL OR finished_at IS NULL OR total > 0 AND manifest IS NULL)
    """)

    def all_ended() -> bool:
        with transaction(platform) as tx:
            return tx.scalar(unfinished, {"tenant": tenant}) == 0

    eventually(all_ended)
    assert_invariants(platform)
