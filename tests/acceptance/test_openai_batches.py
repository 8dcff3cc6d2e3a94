"""Batches under /v1, as the `openai` package hands them in, looks at them and fetches them."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from openai.types import Batch
from openai.types.chat import ChatCompletion
from openai.types.create_embedding_response import CreateEmbeddingResponse
from pydantic import TypeAdapter
from sqlalchemy import text

from jobs import ids
from jobs.store import invariants
from jobs.usecases import tenant_files
from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.platforms import database_of, spec
from tests.support.receiver import Receiver, receiving
from tests.support.wait import PATIENCE_S, eventually

MODELS = """
[[model]]
name = "minilm"
version = "1"
engine = "minilm"

[[model]]
name = "vectors"
version = "1"
engine = "function"
task = "embedding"
options = { function = "tests.support.models.paced:vectors" }
limits = { max_batch = 4, in_flight = 1, slice_items = 20 }

[[model]]
name = "talker"
version = "1"
engine = "echo"
task = "chat"
limits = { max_batch = 500, max_item_bytes = 2000 }

[[model]]
name = "echo"
version = "1"
engine = "echo"
"""
ENDED = {"failed", "completed", "expired", "cancelled"}
NOWHERE = "batch_01aryz6s41tsv4rrffq69g5fav"
PLATFORM = spec(MODELS, is_closed=True, lease_s=3.0, webhook_allow="127.0.0.1")


def client_of(platform: Platform, tenant: str, **more: Any) -> openai.OpenAI:
    key, _ = make_key_at(platform.settings.database_url, tenant, **more)
    return openai.OpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def client(platform: Platform) -> Iterator[openai.OpenAI]:
    with client_of(platform, "acme") as made:
        yield made


@pytest.fixture(scope="module")
def native(client: openai.OpenAI, platform: Platform) -> Iterator[httpx.Client]:
    with native_of(platform, client) as made:
        yield made


def native_of(platform: Platform, client: openai.OpenAI) -> httpx.Client:
    """The same tenant at the native routes."""
    headers = {"Authorization": f"Bearer {client.api_key}"}
    return httpx.Client(base_url=platform.url, headers=headers)


def embedding(custom_id: str, input: Any, model: str = "vectors", **more: Any) -> dict[str, Any]:
    body = {"model": model, "input": input, **more}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/embeddings", "body": body}


def talk(custom_id: str, said: str = "hello") -> dict[str, Any]:
    body = {"model": "talker", "messages": [{"role": "user", "content": said}]}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def upload(client: openai.OpenAI, *lines: Any, purpose: Any = "batch") -> str:
    raw = b"".join(
        (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in lines
    )
    return client.files.create(file=("requests.jsonl", raw), purpose=purpose).id


def create(
    client: openai.OpenAI, *lines: Any, endpoint: Any = "/v1/embeddings", **more: Any
) -> Batch:
    asked: Any = {"completion_window": "24h", **more}
    return client.batches.create(input_file_id=upload(client, *lines), endpoint=endpoint, **asked)


def ended(client: openai.OpenAI, batch: Batch, timeout_s: float = PATIENCE_S) -> Batch:
    def look() -> Batch | None:
        found = client.batches.retrieve(batch.id)
        check(found)
        return found if found.status in ENDED else None

    found = eventually(look, timeout_s)
    assert found is not None
    return found


def check(batch: Batch) -> None:
    """Checks a batch against the package's own types, which it doesn't check itself."""
    TypeAdapter(Batch).validate_python(batch.to_dict(), strict=True)
    order = ["created_at", "in_progress_at", "cancelling_at", "finalizing_at"]
    order += [f"{batch.status}_at"] if batch.status in ENDED else []
    times = [at for name in order if (at := getattr(batch, name, None)) is not None]
    assert times == sorted(times)
    counts = batch.request_counts
    assert counts is not None
    assert counts.completed + counts.failed <= counts.total


def lines_of(client: openai.OpenAI, file_id: str | None) -> list[dict[str, Any]]:
    assert file_id is not None
    return [json.loads(line) for line in client.files.content(file_id).content.splitlines()]


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
    assert made.request_counts is not None
    assert made.request_counts.total == 0
    batch = ended(client, made)
    assert (batch.status, batch.error_file_id, batch.errors) == ("completed", None, None)
    assert (batch.model, batch.endpoint, batch.completion_window) == (
        "minilm",
        "/v1/embeddings",
        "24h",
    )
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 5, "completed": 5, "failed": 0}
    for at in (batch.in_progress_at, batch.finalizing_at, batch.completed_at):
        assert at is not None
        assert batch.created_at <= at <= batch.created_at + 60
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
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 3, "completed": 2, "failed": 1}
    assert [line["custom_id"] for line in lines_of(client, batch.output_file_id)] == [
        "good",
        "fine",
    ]
    [line] = lines_of(client, batch.error_file_id)
    assert (line["custom_id"], line["response"]["status_code"]) == ("bad", 500)
    assert "told to fail" in line["response"]["body"]["error"]["message"]


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
    assert batch.errors is not None
    assert batch.errors.data is not None
    found = [(error.line, error.code, error.param) for error in batch.errors.data]
    assert sorted(found, key=str) == [
        (2, "duplicate_custom_id", "custom_id"),
        (3, "invalid_json_line", None),
        (4, "unsupported_parameter", "body.stream"),
        (5, "mismatched_model", "body.model"),
        (6, "invalid_url", "url"),
    ]
    assert all(error.message for error in batch.errors.data)


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
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert [error.code for error in batch.errors.data] == [code]


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
    assert batch.status == "failed"
    assert batch.errors is not None
    assert batch.errors.data is not None
    assert batch.errors.data[0].code in ("no_such_file", "payload_lost")


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
    with client_of(platform, "other") as other:
        foreign = upload(other, embedding("a", "x"))
    wanted: Any = {"endpoint": "/v1/embeddings", "completion_window": "24h"}
    for id in (foreign, "file_01aryz6s41tsv4rrffq69g5fav", "file-abc"):
        with pytest.raises(openai.NotFoundError, match="there is no file"):
            client.batches.create(input_file_id=id, **wanted)
    pictures = upload(client, b"x", purpose="vision")
    with pytest.raises(openai.BadRequestError) as caught:
        client.batches.create(input_file_id=pictures, **wanted)
    assert (caught.value.param, caught.value.code) == ("input_file_id", "invalid_file_purpose")


def test_a_cancelled_batch_keeps_what_it_has(client: openai.OpenAI) -> None:
    lines = [embedding(f"fast-{n}", "x") for n in range(20)]
    lines += [embedding(f"slow-{n}", "wait") for n in range(200)]
    made = create(client, *lines)

    def under_way() -> bool:
        counts = client.batches.retrieve(made.id).request_counts
        return counts is not None and counts.completed >= 20

    eventually(under_way)
    said = client.batches.cancel(made.id)
    check(said)
    assert said.status in ("cancelling", "cancelled")
    assert said.cancelling_at is not None
    batch = ended(client, made)
    assert (batch.status, client.batches.cancel(made.id).status) == ("cancelled", "cancelled")
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


def test_fifty_thousand_lines(client: openai.OpenAI) -> None:
    said = "x" * 600
    made = create(
        client, *(talk(f"line-{n}", said) for n in range(50_000)), endpoint="/v1/chat/completions"
    )
    batch = ended(client, made)
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.to_dict() == {"total": 50_000, "completed": 50_000, "failed": 0}
    with client.files.with_streaming_response.content(str(batch.output_file_id)) as answer:
        names = [json.loads(line)["custom_id"] for line in answer.iter_lines()]
    assert names == [f"line-{n}" for n in range(50_000)]


def test_lists_go_page_by_page_newest_first(platform: Platform) -> None:
    with client_of(platform, "lists") as client:
        assert client.batches.list().data == []
        made = [create(client, embedding("a", "x")).id for _ in range(5)]
        headers = {"Authorization": f"Bearer {client.api_key}"}
        with httpx.Client(base_url=platform.url, headers=headers) as http:
            job = http.post("/jobs", json={"model": "echo", "items": ["x"]}).json()["id"]
        assert [batch.id for batch in client.batches.list(limit=2)] == made[::-1]
        assert client.batches.list(after=made[1]).data[0].id == made[0]
        with pytest.raises(openai.NotFoundError):  # it came by another door
            client.batches.retrieve(job)


def test_another_tenants_batch_is_one_that_does_not_exist(
    client: openai.OpenAI, platform: Platform
) -> None:
    made = create(client, embedding("a", "x"))
    with client_of(platform, "stranger") as stranger:
        for ask in (stranger.batches.retrieve, stranger.batches.cancel):
            answers = []
            for id in (made.id, NOWHERE):
                with pytest.raises(openai.NotFoundError) as caught:
                    ask(id)
                answers.append(str(caught.value).replace(id, "ID"))
            assert answers[0] == answers[1]
    assert ended(client, made).status == "completed"


def test_a_batch_is_a_job_under_either_name(client: openai.OpenAI, native: httpx.Client) -> None:
    """Native routes with the same id do what the package has no method for."""
    lines = [embedding(f"n-{n}", "wait") for n in range(40)]
    made = create(client, *lines)
    job_id = made.id.replace("batch_", "job_")
    for id in (made.id, job_id):
        assert client.batches.retrieve(id).id == made.id
        assert native.get(f"/jobs/{id}").json()["id"] == job_id
    eventually(lambda: client.batches.retrieve(made.id).status == "in_progress")
    assert native.post(f"/jobs/{made.id}/pause").json()["state"] == "paused"
    assert client.batches.retrieve(made.id).status == "in_progress"
    assert native.post(f"/jobs/{made.id}/resume").status_code == 200

    def live() -> bool:
        got = native.get(f"/jobs/{made.id}/results")
        first = json.loads(got.text.splitlines()[0]) if got.text else {}
        return bool(first.get("custom_id") == "n-0" and first["output"] == [4.0, 0.5])

    eventually(live)
    assert native.post(f"/jobs/{made.id}/cancel").status_code == 200
    assert ended(client, made).status == "cancelled"
    native.post(f"/jobs/{made.id}/retry").raise_for_status()
    again = client.batches.retrieve(made.id)
    assert again.status == "in_progress"
    assert (again.output_file_id, again.cancelled_at, again.cancelling_at) == (None, None, None)
    assert native.post(f"/jobs/{made.id}/cancel").status_code == 200
    assert ended(client, made).status == "cancelled"
    assert native.delete(f"/jobs/{made.id}").status_code == 204
    with pytest.raises(openai.NotFoundError):
        client.batches.retrieve(made.id)


def test_a_request_that_is_tried_again_makes_one_batch(
    platform: Platform, client: openai.OpenAI
) -> None:
    """The package's retries have no key: it says in a header that they are."""
    wanted: Any = {
        "input_file_id": upload(client, embedding("a", "x")),
        "endpoint": "/v1/embeddings",
        "completion_window": "24h",
    }
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


def test_retries_that_race_make_one_batch(platform: Platform, client: openai.OpenAI) -> None:
    id = upload(client, embedding("a", "x"))
    together = threading.Barrier(8)

    def ask(n: int) -> str:
        with openai.OpenAI(base_url=client.base_url, api_key=client.api_key, max_retries=0) as own:
            together.wait(PATIENCE_S)
            return own.batches.create(
                input_file_id=id,
                endpoint="/v1/embeddings",
                completion_window="2h",
                extra_headers={"x-stainless-retry-count": str(n)},
            ).id

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(ask, range(1, 9)))
    assert len(made) == 1


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as started:
        yield started


def test_the_end_of_a_batch_is_told_as_openai_does(platform: Platform, receiver: Receiver) -> None:
    with client_of(platform, "told") as client, native_of(platform, client) as native:
        _tell(client, native, receiver)


def _tell(client: openai.OpenAI, native: httpx.Client, receiver: Receiver) -> None:
    secret = native.get("/webhooks/secret").json()["secret"]
    native.put("/webhooks/endpoint", json={"url": receiver.url}).raise_for_status()
    good = create(client, embedding("a", "x"))
    bad = create(client, b"no line")
    late = create(client, *(embedding(str(n), "wait") for n in range(99)), completion_window="2s")
    stopped = create(client, *(embedding(str(n), "wait") for n in range(99)))
    eventually(lambda: client.batches.retrieve(stopped.id).status == "in_progress")
    client.batches.cancel(stopped.id)
    eventually(lambda: len(receiver.received) >= 4)
    native.put("/webhooks/endpoint", json={"url": None}).raise_for_status()
    events = [
        client.webhooks.unwrap(one.body, one.headers, secret=secret) for one in receiver.received
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


def test_nothing_of_a_batch_is_left_open(platform: Platform) -> None:
    """After all of the above: what `millrace check --invariants` would say."""
    unfinished = text("""
        SELECT count(*) FROM jobs
        WHERE dialect = 'openai' AND (finished_at IS NULL OR total > 0 AND manifest IS NULL)
    """)

    def all_ended() -> bool:
        with database.begin() as tx:
            return tx.scalar(unfinished) == 0 == tx.scalar(text("SELECT count(*) FROM transfers"))

    with database_of(platform) as database:
        eventually(all_ended)
        with invariants.snapshot(database) as tx:
            found = [one for i in invariants.INVARIANTS for one in invariants.violations(tx, i)]
    assert found == []
