"""Anthropic's own client, as it comes, against a running platform."""

from typing import Any

import anthropic
import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.clients import chat
from tests.support.models.entries import model
from tests.support.packages import anthropic_ended as ended
from tests.support.packages import anthropic_with
from tests.support.platforms import CHATTING
from tests.support.wait import eventually

MODELS = model(
    "chatter",
    "python",
    task="chat",
    limits={"max_batch": 8, "window_ms": 5, "slice_items": 8},
    file="chatter.py",
)
CHATTER = '''
"""Says what it was told last, in capitals; waits, and fails, when it is told to."""

import pathlib

from tests.support.wait import eventually

GATE = pathlib.Path(__file__).with_name("gate")


def predict(batch):
    return [answer(item["messages"]) for item in batch]


def answer(messages):
    text = messages[-1]["content"]
    if text == "wait":
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


FILES = {"chatter.py": CHATTER}
PLATFORM = CHATTING


def asked(custom_id: str, text: Any, **params: Any) -> Any:
    body = {"model": "chatter", "max_tokens": 50, **chat(text)} | params
    return {"custom_id": custom_id, "params": body}


def answered(claude: anthropic.Anthropic, *requests: Any) -> list[Any]:
    """The results of a batch, in their order."""
    made = claude.messages.batches.create(requests=requests)
    ended(claude, made.id)
    return list(claude.messages.batches.results(made.id))


def test_a_batch_from_its_requests_to_its_messages(claude: anthropic.Anthropic) -> None:
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
    assert {message.model for message in said} == {"chatter"}
    assert [message.stop_reason for message in said] == ["end_turn"] * 3 + ["max_tokens"]
    assert (said[3].usage.input_tokens, said[3].usage.output_tokens) == (3, 1)
    assert len({message.id for message in said}) == 4
    error = lines[4].result.error.error
    assert error.type == "api_error"
    assert "told to" in error.message


def test_long_answers_come_whole_out_of_the_blob_store(claude: anthropic.Anthropic) -> None:
    requests = [asked(f"{n}", "long" if n % 2 else f"short {n}") for n in range(6)]
    texts = [line.result.message.content[0].text for line in answered(claude, *requests)]
    assert texts == ["x" * 5000 if n % 2 else f"SHORT {n}" for n in range(6)]


def test_an_answer_that_is_no_text_is_an_error(claude: anthropic.Anthropic) -> None:
    odd, good = answered(claude, asked("odd", "odd"), asked("a", "x"))
    assert odd.result.error.error.type == "api_error"
    assert good.result.message.content[0].text == "X"


def test_counts_and_results_are_live(
    claude: anthropic.Anthropic, platform: Platform, key: str
) -> None:
    """Counts and results are shown before the batch has ended."""
    gate = platform.settings.models.with_name("gate")
    requests = [asked(f"quick-{n}", "x") for n in range(20)] + [asked("slow", "wait")]
    made = claude.messages.batches.create(requests=requests)
    try:
        counts = eventually(
            lambda: (c := claude.messages.batches.retrieve(made.id).request_counts).succeeded and c
        )
        assert counts.processing + counts.succeeded == 21
        results = f"{platform.url}/v1/messages/batches/{made.id}/results"
        eventually(
            lambda: len(httpx.get(results, headers={"X-Api-Key": key}).text.splitlines()) >= 8
        )
        with pytest.raises(anthropic.AnthropicError, match="results_url"):
            claude.messages.batches.results(made.id)
    finally:
        gate.touch()
    assert ended(claude, made.id).request_counts.succeeded == 21
    gate.unlink()


def test_a_batch_is_cancelled_in_the_middle_and_deleted(
    claude: anthropic.Anthropic, platform: Platform
) -> None:
    """There are more requests than a worker claims at once: those have not begun."""
    gate = platform.settings.models.with_name("gate")
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
    gate.unlink()


def test_batches_are_listed_a_page_at_a_time(claude: anthropic.Anthropic) -> None:
    ids = [claude.messages.batches.create(requests=[asked("a", "x")]).id for _ in range(5)]
    native = claude.post("/jobs", body={"model": "echo", "items": ["x"]}, cast_to=object)
    listed = [batch.id for batch in claude.messages.batches.list(limit=2)]
    assert listed[:5] == ids[::-1]
    assert native["id"].replace("job_", "msgbatch_") not in listed  # type: ignore[index]
    page = claude.messages.batches.list(limit=2, before_id=ids[1])
    assert [batch.id for batch in page.data] == [ids[3], ids[2]]
    assert page.has_more


def test_the_native_routes_take_the_same_id(claude: anthropic.Anthropic) -> None:
    made = claude.messages.batches.create(requests=[asked("a", "x")])
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
        (asked("a", "x", thinking={"type": "adaptive"}), "requests.0.params.thinking"),
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
def test_what_is_wrong_is_said_with_its_place(
    claude: anthropic.Anthropic, request_: Any, told: str
) -> None:
    with pytest.raises(anthropic.BadRequestError, match=told) as caught:
        claude.messages.batches.create(requests=[request_])
    assert caught.value.type == "invalid_request_error"
    assert str(caught.value).count("requests.0") <= 1


def test_what_is_no_id_is_told_so_once(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError, match="there is no message batch") as caught:
        claude.messages.batches.retrieve("nonsense")
    assert str(caught.value).count("nonsense") == 1


def test_a_retry_makes_no_second_batch(claude: anthropic.Anthropic) -> None:
    requests = [asked("retried", "x")]
    create = claude.messages.batches.create
    first = create(requests=requests)
    again = create(requests=requests, extra_headers={"x-stainless-retry-count": "1"})
    meant = create(requests=requests)
    assert first.id == again.id != meant.id
    key = {"Idempotency-Key": '"one of mine"'}
    keyed = [create(requests=requests, extra_headers=key).id for _ in range(2)]
    assert keyed[0] == keyed[1]
    assert keyed[0] not in (first.id, meant.id)
    with pytest.raises(anthropic.UnprocessableEntityError, match="key"):
        create(requests=[asked("other", "x")], extra_headers=key)


@pytest.mark.parametrize(
    "body",
    [
        rb'{"requests": [{"custom_id": "a", "params": {"model": "\ud800", "max_tokens": 1}}]}',
        rb'{"requests": [{"custom_id": "a", "params": {"model": "chatter", "\ud800": 1}}]}',
        rb'{"requests": [{"custom_id": "\ud800", "params": {"model": "chatter"}}]}',
    ],
)
def test_a_lone_surrogate_is_the_clients_mistake(platform: Platform, key: str, body: bytes) -> None:
    headers = {"X-Api-Key": key, "Content-Type": "application/json"}
    answer = httpx.post(f"{platform.url}/v1/messages/batches", headers=headers, content=body)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["type"] == "error"


def test_everything_wrong_is_told_at_once(claude: anthropic.Anthropic) -> None:
    requests = [
        asked("a", "x"), asked("a", "x"), asked("b", "x", model="other"),
        asked("c", "x", max_tokens="many"),
    ]  # fmt: skip
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.batches.create(requests=requests)
    message = str(caught.value)
    for told in ("requests.1.custom_id", "requests.2.params.model", "requests.3.params.max_tokens"):
        assert told in message


def test_who_may_not_is_told_so(platform: Platform, claude: anthropic.Anthropic) -> None:
    made = claude.messages.batches.create(requests=[asked("a", "x")])
    with anthropic_with(platform, "mk_wrong") as other:
        with pytest.raises(anthropic.AuthenticationError) as caught:
            other.messages.batches.retrieve(made.id)
        assert caught.value.type == "authentication_error"
    with pytest.raises(anthropic.NotFoundError) as missing:
        claude.messages.batches.create(requests=[asked("a", "x", model="nobody")])
    assert missing.value.type == "not_found_error"
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.retrieve("msgbatch_01kb4q0m3ve0ar6h4cgq9x9b7s")
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.retrieve("msgbatch_gone")


def test_models_are_listed_in_anthropics_format(
    claude: anthropic.Anthropic, platform: Platform, key: str
) -> None:
    listed = list(claude.models.list(limit=1))
    assert {"chatter", "chatter@1"} <= {model.id for model in listed}
    assert {(model.type, model.lifecycle) for model in listed} == {("model", "active")}
    found = claude.models.retrieve("chatter")
    assert found == next(model for model in listed if model.id == "chatter")
    last = claude.models.list(before_id=listed[-1].id, limit=1)
    assert ([model.id for model in last.data], last.has_more) == ([listed[-2].id], True)
    with pytest.raises(anthropic.NotFoundError) as caught:
        claude.models.retrieve("gone")
    assert (caught.value.type, bool(caught.value.request_id)) == ("not_found_error", True)
    plain = httpx.get(f"{platform.url}/v1/models", headers={"Authorization": f"Bearer {key}"})
    assert plain.json()["object"] == "list"
    assert "request-id" not in plain.headers


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/gone"),
        ("GET", "/v1/messages/batches"),
        ("GET", "/v1/messages/batches/gone"),
        ("GET", "/v1/messages/nowhere"),
        ("POST", "/v1/messages"),
        ("POST", "/v1/messages/count_tokens"),
        ("POST", "/v1/messages/batches"),
        ("PUT", "/v1/messages"),
    ],
)
def test_every_answer_names_its_request(
    platform: Platform, key: str, method: str, path: str
) -> None:
    headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    for who in (headers, headers | {"x-api-key": "mk_wrong"}):
        answer = httpx.request(method, f"{platform.url}{path}", headers=who)
        assert answer.headers["request-id"] == answer.headers["x-request-id"]
        if answer.is_error:
            assert answer.json()["request_id"] == answer.headers["request-id"]
