"""Anthropic's own client, as it comes, against a running platform."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import Anthropic

from jobs.identity import Limit
from jobs.store.tenants import limits
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.clients import chat
from tests.support.keys import make_key_at
from tests.support.models.entries import model
from tests.support.packages import anthropic_ended as ended
from tests.support.packages import anthropic_with
from tests.support.platforms import CHATTING, transaction
from tests.support.wait import eventually

LIMITS = {"max_batch": 1, "window_ms": 5, "slice_items": 8}
"""An item that waits holds up no other item's launch: each has its own."""
MODELS = model("words", "echo_chat")
MODELS += model("capitals", "python", task="chat", limits=LIMITS, file="capitals.py")
CAPITALS = '''
"""Says what it was told last, in capitals; waits for the gate, and fails, when it is told to."""

import pathlib

from tests.support.wait import eventually

GATE = pathlib.Path(__file__).with_name("gate")


def predict(batch):
    return [answer(item["messages"]) for item in batch]


def answer(messages):
    text = messages[-1]["content"]
    if text.startswith("wait"):
        eventually(GATE.exists)
    if text == "fail":
        raise ValueError("told to")
    if text == "long":
        return "x" * 5000
    if text == "odd":
        return {"choices": [{"message": {"content": [{"type": "image"}]}, "finish_reason": []}]}
    if text == "whole":
        message = {"role": "assistant", "content": "counted"}
        return {
            "object": "chat.completion",
            "choices": [{"index": 0, "message": message, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        }
    system = [m["content"] for m in messages if m["role"] == "system"]
    return " ".join([*system, text.upper()])
'''

FILES = {"capitals.py": CAPITALS}
PLATFORM = CHATTING


@pytest.fixture
def gate(platform: Platform) -> Iterator[Path]:
    path: Path = platform.settings.models.with_name("gate")
    path.unlink(missing_ok=True)
    yield path
    path.touch()  # what a test left unfinished ends, and the model can be taken out


def asked(custom_id: Any, text: Any, **params: Any) -> Any:
    body = {"model": "capitals", "max_tokens": 50, **chat(text)} | params
    return {"custom_id": custom_id, "params": body}


ONE = [asked("a", "x")]
MIXED = [
    asked("a", "wait one two"),
    asked("b", "three", model="words"),
    asked("c", "wait four"),
    asked("d", "five six", model="words"),
]
"""Requests that name several models."""


def total(batch: Any) -> int:
    return sum(batch.request_counts.to_dict().values())


def test_a_batch_from_its_requests_to_its_messages(claude: Anthropic) -> None:
    made = claude.messages.batches.create(
        requests=[
            asked("plain", "hello"),
            asked("blocks", [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]),
            asked("system", "hello", system="Politely:", temperature=0.5, stop_sequences=["."]),
            asked("counted", "whole"),
            asked("failing", "fail"),
        ]
    )
    assert made.id.startswith("msgbatch_")
    batch = ended(claude, made.id)
    assert batch.request_counts.to_dict() == {
        "processing": 0, "succeeded": 4, "errored": 1, "canceled": 0, "expired": 0
    }  # fmt: skip
    assert batch.created_at <= batch.ended_at < batch.expires_at
    lines = list(claude.messages.batches.results(made.id))
    assert [line.custom_id for line in lines] == ["plain", "blocks", "system", "counted", "failing"]
    said = [line.result.message for line in lines[:4]]
    assert [message.content[0].text for message in said] == [
        "HELLO", "TWO PARTS", "Politely: HELLO", "counted"
    ]  # fmt: skip
    assert {message.model for message in said} == {"capitals"}
    assert [message.stop_reason for message in said] == ["end_turn"] * 3 + ["max_tokens"]
    assert (said[3].usage.input_tokens, said[3].usage.output_tokens) == (3, 1)
    assert len({message.id for message in said}) == 4
    failed = lines[4].result.error.error
    assert (failed.type, "told to" in failed.message) == ("api_error", True)


def test_long_answers_come_whole_and_one_that_is_no_text_is_an_error(claude: Anthropic) -> None:
    requests = [asked(f"{n}", "long" if n % 2 else f"short {n}") for n in range(6)]
    made = claude.messages.batches.create(requests=[*requests, asked("odd", "odd")])
    ended(claude, made.id)
    *results, odd = claude.messages.batches.results(made.id)
    assert odd.result.error.error.type == "api_error"  # type: ignore[union-attr]
    texts = [line.result.message.content[0].text for line in results]  # type: ignore[union-attr]
    assert texts == ["x" * 5000 if n % 2 else f"SHORT {n}" for n in range(6)]


def test_a_result_is_one_line_for_readers_that_know_the_line_ends_of_unicode(
    claude: Anthropic,
) -> None:
    said = "A\u2028B\u2029C\x85D"
    made = claude.messages.batches.create(requests=[asked("a", said), asked("b", said)])
    ended(claude, made.id)
    path = f"/v1/messages/batches/{made.id}/results"
    lines = claude.get(path, cast_to=str).splitlines()
    texts = [json.loads(line)["result"]["message"]["content"][0]["text"] for line in lines]
    assert texts == [said, said]


def test_counts_and_results_are_live(claude: Anthropic, http: httpx.Client, gate: Path) -> None:
    """Counts and results are shown before the batch has ended."""
    requests = [asked(f"quick-{n}", "x") for n in range(20)] + [asked("slow", "wait")]
    made = claude.messages.batches.create(requests=requests)
    counts = eventually(
        lambda: (c := claude.messages.batches.retrieve(made.id).request_counts).succeeded and c
    )
    assert counts.processing + counts.succeeded == 21
    results = f"/v1/messages/batches/{made.id}/results"
    eventually(lambda: len(http.get(results).text.splitlines()) >= counts.succeeded)
    with pytest.raises(anthropic.AnthropicError, match="results_url"):
        claude.messages.batches.results(made.id)
    gate.touch()
    assert ended(claude, made.id).request_counts.succeeded == 21


def test_a_batch_is_cancelled_in_the_middle_and_deleted(claude: Anthropic, gate: Path) -> None:
    """There are more requests than a worker claims at once: those have not begun."""
    made = claude.messages.batches.create(requests=[asked(f"w-{n}", "wait") for n in range(200)])
    cancelled = claude.messages.batches.cancel(made.id)
    assert cancelled.processing_status in ("canceling", "ended")
    assert cancelled.cancel_initiated_at is not None
    if cancelled.processing_status != "ended":
        with pytest.raises(anthropic.ConflictError):
            claude.messages.batches.delete(made.id)
    gate.touch()
    counts = ended(claude, made.id).request_counts
    assert counts.canceled > 0
    assert counts.canceled + counts.succeeded == 200
    kinds = [line.result.type for line in claude.messages.batches.results(made.id)]
    assert kinds.count("canceled") == counts.canceled
    assert claude.messages.batches.delete(made.id).type == "message_batch_deleted"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.retrieve(made.id)


def test_batches_are_listed_a_page_at_a_time(claude: Anthropic) -> None:
    ids = [claude.messages.batches.create(requests=ONE).id for _ in range(5)]
    native = claude.post("/jobs", body={"model": "echo", "items": ["x"]}, cast_to=object)
    listed = [batch.id for batch in claude.messages.batches.list(limit=2)]
    assert listed[:5] == ids[::-1]
    assert native["id"].replace("job_", "msgbatch_") not in listed  # type: ignore[index]
    page = claude.messages.batches.list(limit=2, before_id=ids[1])
    assert [batch.id for batch in page.data] == [ids[3], ids[2]]
    assert page.has_more


def test_the_native_routes_take_the_same_id(claude: Anthropic) -> None:
    made = claude.messages.batches.create(requests=ONE)
    ended(claude, made.id)
    job: Any = claude.get(f"/jobs/{made.id}", cast_to=object)
    assert job["state"] == "completed"
    assert job["id"].removeprefix("job_") == made.id.removeprefix("msgbatch_")
    assert claude.messages.batches.retrieve(job["id"]).id == made.id


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (asked("a", "x", max_tokens=0), "requests.0.params.max_tokens"),
        (asked("a", "x", stream=True), "requests.0.params.stream"),
        (asked("a", "x", tools=[{"type": "bash_20250124"}]), "requests.0.params.tools.0"),
        (asked("a", "x", thinking={"type": "some"}), "requests.0.params.thinking.type"),
        (asked("a", "x", messages=[]), "requests.0.params.messages"),
        (asked("a", [{"type": "image", "source": {}}]), "requests.0.params.messages.0.content.0"),
        (asked("a", "x", model="echo"), "echo does any, not chat"),
        ({"custom_id": "a"}, "requests.0.params: "),
        (asked("a", "x", model=None), "names no model"),
        (asked("", "x"), "requests.0.custom_id"),
        (asked(None, "x"), "requests.0.custom_id"),
        (asked("\0", "x"), "requests.0.custom_id"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(claude: Anthropic, request_: Any, told: str) -> None:
    with pytest.raises(anthropic.BadRequestError, match=told) as caught:
        claude.messages.batches.create(requests=[request_])
    assert caught.value.type == "invalid_request_error"
    assert str(caught.value).count("requests.0") <= 1


@pytest.mark.parametrize("requests", [ONE, MIXED], ids=["one", "mixed"])
def test_a_retry_makes_no_second_batch(claude: Anthropic, gate: Path, requests: list[Any]) -> None:
    gate.touch()
    create = claude.messages.batches.create
    first = create(requests=requests)
    again = create(requests=requests, extra_headers={"x-stainless-retry-count": "1"})
    meant = create(requests=requests)
    assert first.id == again.id != meant.id
    key = {"Idempotency-Key": f'"{len(requests)} of mine"'}
    keyed = [create(requests=requests, extra_headers=key) for _ in range(2)]
    assert keyed[0].id == keyed[1].id
    assert keyed[0].id not in (first.id, meant.id)
    assert total(again) == total(keyed[1]) == len(requests)
    with pytest.raises(anthropic.UnprocessableEntityError, match="key"):
        create(requests=[asked("other", "x")], extra_headers=key)
    for made in (first, meant, keyed[0]):
        ended(claude, made.id)  # the next test shuts the gate


@pytest.mark.parametrize(
    "body",
    [
        rb'{"requests": [{"custom_id": "a", "params": {"model": "\ud800", "max_tokens": 1}}]}',
        rb'{"requests": [{"custom_id": "a", "params": {"model": "capitals", "\ud800": 1}}]}',
        rb'{"requests": [{"custom_id": "\ud800", "params": {"model": "capitals"}}]}',
    ],
)
def test_a_lone_surrogate_is_the_clients_mistake(http: httpx.Client, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    answer = http.post("/v1/messages/batches", headers=headers, content=body)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["type"] == "error"


def test_what_is_not_there_and_who_is_unknown_are_told_in_its_words(
    platform: Platform, claude: Anthropic
) -> None:
    with (
        anthropic_with(platform, "mk_wrong") as other,
        pytest.raises(anthropic.AuthenticationError) as caught,
    ):
        other.messages.batches.retrieve("msgbatch_gone")
    assert caught.value.type == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.messages.batches.create(requests=[asked("a", "x", model="nobody")])
    assert missing.value.type == "not_found_error"
    for id in ("msgbatch_01kb4q0m3ve0ar6h4cgq9x9b7s", "msgbatch_gone", "nonsense"):
        with pytest.raises(anthropic.NotFoundError, match="there is no message batch") as missing:
            claude.messages.batches.retrieve(id)
        assert str(missing.value).count(id) == 1


def test_models_have_anthropics_format(claude: Anthropic, platform: Platform, key: str) -> None:
    listed = list(claude.models.list(limit=1))
    assert {"capitals", "capitals@1"} <= {model.id for model in listed}
    assert {(model.type, model.lifecycle) for model in listed} == {("model", "active")}
    found = claude.models.retrieve("capitals")
    assert found == next(model for model in listed if model.id == "capitals")
    last = claude.models.list(before_id=listed[-1].id, limit=1)
    assert ([model.id for model in last.data], last.has_more) == ([listed[-2].id], True)
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.models.retrieve("gone")
    assert (caught.value.type, bool(caught.value.request_id)) == ("not_found_error", True)
    plain = httpx.get(f"{platform.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    assert plain.json()["object"] == "list"
    assert "request-id" not in plain.headers


GET = ("models", "models/gone", "messages/batches", "messages/batches/gone", "messages/nowhere")
POST = ("messages", "messages/count_tokens", "messages/batches")


def test_every_answer_names_its_request(platform: Platform, key: str) -> None:
    routes = [("PUT", "messages"), *(("GET", path) for path in GET)]
    routes += [("POST", path) for path in POST]
    for ((method, path), who), case in each(product(routes, (key, "mk_wrong"))):
        with case:
            headers = {"x-api-key": who, "anthropic-version": "2023-06-01"}
            answer = httpx.request(method, f"{platform.url}/v1/{path}", headers=headers)
            assert answer.headers["request-id"] == answer.headers["x-request-id"]
            if answer.is_error:
                assert answer.json()["request_id"] == answer.headers["request-id"]


def test_each_request_is_answered_by_its_model(claude: Anthropic, gate: Path) -> None:
    made = claude.messages.batches.create(requests=MIXED)
    assert made.request_counts.processing == 4
    partial = eventually(
        lambda: (b := claude.messages.batches.retrieve(made.id)).request_counts.succeeded and b
    )
    assert partial.processing_status == "in_progress"
    gate.touch()
    assert ended(claude, made.id).request_counts.succeeded == 4
    lines = {line.custom_id: line.result for line in claude.messages.batches.results(made.id)}
    said = {id: result.message for id, result in lines.items() if result.type == "succeeded"}
    texts = {id: message.content[0].text for id, message in said.items()}  # type: ignore[union-attr]
    assert texts == {"a": "WAIT ONE TWO", "b": "three", "c": "WAIT FOUR", "d": "five six"}
    assert {id: message.model for id, message in said.items()} == {
        "a": "capitals", "b": "words", "c": "capitals", "d": "words"
    }  # fmt: skip
    assert len({message.id for message in said.values()}) == 4
    jobs: Any = claude.get("/jobs", cast_to=object)
    [part] = [job for job in jobs["data"][:2] if job["id"][4:] != made.id[9:]]
    with pytest.raises(anthropic.NotFoundError):  # no batch of its own
        claude.messages.batches.retrieve(part["id"].replace("job_", "msgbatch_"))


def test_it_is_one_batch_in_the_list_and_to_its_verbs(claude: Anthropic, gate: Path) -> None:
    earlier = claude.messages.batches.create(requests=[asked("x", "x", model="words")])
    made = claude.messages.batches.create(requests=MIXED)
    page = claude.messages.batches.list(limit=2)
    assert [batch.id for batch in page.data] == [made.id, earlier.id]
    assert total(page.data[0]) == 4
    with pytest.raises(anthropic.ConflictError):
        claude.messages.batches.delete(made.id)
    cancelled = claude.messages.batches.cancel(made.id)
    assert cancelled.processing_status in ("canceling", "ended")
    gate.touch()
    counts = ended(claude, made.id).request_counts
    assert counts.canceled + counts.succeeded == 4
    jobs: Any = claude.get("/jobs", cast_to=object)
    parts = [job["id"] for job in jobs["data"][:2]]
    assert claude.messages.batches.delete(made.id).type == "message_batch_deleted"
    for id in parts:
        with pytest.raises(anthropic.NotFoundError):
            claude.get(f"/jobs/{id}", cast_to=object)


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_stored(claude: Anthropic) -> None:
    def stored() -> list[str]:
        jobs: Any = claude.get("/jobs", cast_to=object)
        return [job["id"] for job in jobs["data"]]

    before = stored()
    wrong = [
        (asked("e", "x", model="nobody"), "requests.4.params.model: "),
        (asked("f", "x", model="echo"), "requests.5.params.model: echo does any, not chat"),
        (ONE[0], "requests.6.custom_id: custom_id is already that of request 0"),
        (asked("g", "x", model="words", top_k="many"), "requests.7.params: "),
        (asked("h", "x", max_tokens="many"), "requests.8.params.max_tokens"),
    ]
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.batches.create(requests=[*MIXED, *(request for request, _ in wrong)])
    message = str(caught.value)
    assert [told for _, told in wrong if told not in message] == []
    assert message.count("custom_id is already") == 1
    assert stored() == before


def test_quotas_bound_the_whole_batch(claude: Anthropic, platform: Platform) -> None:
    key, _ = make_key_at(platform.settings.database_url, "few")
    with transaction(platform) as tx:
        limits.put(tx, "few", [Limit(queued_items=3)])
    with anthropic_with(platform, key) as few:
        with pytest.raises(anthropic.RateLimitError):
            few.messages.batches.create(requests=MIXED)
        jobs: Any = few.get("/jobs", cast_to=object)
        assert jobs["data"] == []
