"""Message batches whose requests name several models, by Anthropic's own client."""

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from jobs.identity import Limit
from jobs.store.tenants import limits
from ops.supervisor.platform import Platform
from tests.support.clients import chat
from tests.support.keys import make_key_at
from tests.support.models.entries import model
from tests.support.packages import anthropic_ended as ended
from tests.support.packages import anthropic_with
from tests.support.platforms import CHATTING, transaction
from tests.support.wait import eventually

MODELS = model("words", "echo_chat") + model(
    "gated",
    "python",
    task="chat",
    limits={"max_batch": 8, "window_ms": 5, "slice_items": 8},
    file="gated.py",
)
GATED = '''
"""Says what it was told in capitals, once the gate is open."""

import pathlib

from tests.support.wait import eventually

GATE = pathlib.Path(__file__).with_name("gate-of-models")


def predict(batch):
    eventually(GATE.exists)
    return [item["messages"][-1]["content"].upper() for item in batch]
'''
FILES = {"gated.py": GATED}
PLATFORM = CHATTING


@pytest.fixture
def gate(platform: Platform) -> Iterator[Any]:
    path = platform.settings.models.with_name("gate-of-models")
    path.unlink(missing_ok=True)
    yield path
    path.touch()  # what a test left unfinished ends, and the model can be taken out


def asked(custom_id: str, text: str, model: str) -> Any:
    return {"custom_id": custom_id, "params": {"model": model, "max_tokens": 50, **chat(text)}}


MIXED = [
    asked("a", "one two", "gated"),
    asked("b", "three", "words"),
    asked("c", "four", "gated"),
    asked("d", "five six", "words"),
]


def test_each_request_is_answered_by_its_model(claude: anthropic.Anthropic, gate: Any) -> None:
    made = claude.messages.batches.create(requests=MIXED)
    assert made.request_counts.processing == 4
    partial = eventually(
        lambda: (b := claude.messages.batches.retrieve(made.id)).request_counts.succeeded and b
    )
    assert partial.processing_status == "in_progress"
    gate.touch()
    batch = ended(claude, made.id)
    assert batch.request_counts.succeeded == 4
    assert batch.created_at <= batch.ended_at
    lines = {line.custom_id: line.result for line in claude.messages.batches.results(made.id)}
    said = {id: result.message for id, result in lines.items() if result.type == "succeeded"}
    texts = {id: message.content[0].text for id, message in said.items()}  # type: ignore[union-attr]
    assert texts == {"a": "ONE TWO", "b": "three", "c": "FOUR", "d": "five six"}
    assert {id: message.model for id, message in said.items()} == {
        "a": "gated", "b": "words", "c": "gated", "d": "words"
    }  # fmt: skip
    assert len({message.id for message in said.values()}) == 4


def test_it_is_one_batch_in_the_list_and_to_its_verbs(
    claude: anthropic.Anthropic, gate: Any
) -> None:
    earlier = claude.messages.batches.create(requests=[asked("x", "x", "words")])
    made = claude.messages.batches.create(requests=MIXED)
    page = claude.messages.batches.list(limit=2)
    assert [batch.id for batch in page.data] == [made.id, earlier.id]
    assert sum(page.data[0].request_counts.to_dict().values()) == 4  # type: ignore[arg-type]
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


def test_a_part_is_no_batch_of_its_own(claude: anthropic.Anthropic, gate: Any) -> None:
    gate.touch()
    made = claude.messages.batches.create(requests=MIXED)
    ended(claude, made.id)
    jobs: Any = claude.get("/jobs", cast_to=object)
    [part] = [job for job in jobs["data"][:2] if job["id"][4:] != made.id[9:]]
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.batches.retrieve(part["id"].replace("job_", "msgbatch_"))


def test_a_retry_makes_no_second_batch(claude: anthropic.Anthropic, gate: Any) -> None:
    gate.touch()
    create = claude.messages.batches.create
    first = create(requests=MIXED)
    again = create(requests=MIXED, extra_headers={"x-stainless-retry-count": "1"})
    assert again.id == first.id
    assert sum(again.request_counts.to_dict().values()) == 4  # type: ignore[arg-type]
    key = {"Idempotency-Key": '"mixed"'}
    keyed = [create(requests=MIXED, extra_headers=key) for _ in range(2)]
    assert keyed[0].id == keyed[1].id != first.id
    assert sum(keyed[1].request_counts.to_dict().values()) == 4  # type: ignore[arg-type]


def test_a_request_that_cant_run_leaves_nothing_of_the_batch(claude: anthropic.Anthropic) -> None:
    def stored() -> Any:
        return claude.get("/jobs", cast_to=object)["data"]  # type: ignore[index]

    before = [job["id"] for job in stored()]
    requests = [
        *MIXED,
        asked("e", "x", "nobody"),
        asked("f", "x", "echo"),
        asked("a", "x", "words"),
        {"custom_id": "g", "params": {**asked("g", "x", "words")["params"], "top_k": "many"}},
    ]
    with pytest.raises(anthropic.BadRequestError) as caught:
        claude.messages.batches.create(requests=requests)
    message = str(caught.value)
    for told in (
        "requests.4.params.model: ", "requests.5.params.model: echo does any, not chat",
        "requests.6.custom_id: custom_id is already that of request 0", "requests.7.params: ",
    ):  # fmt: skip
        assert told in message
    assert message.count("custom_id is already") == 1
    assert [job["id"] for job in stored()] == before


def test_quotas_bound_the_whole_batch(claude: anthropic.Anthropic, platform: Platform) -> None:
    key, _ = make_key_at(platform.settings.database_url, "few")
    with transaction(platform) as tx:
        limits.put(tx, "few", [Limit(queued_items=3)])
    with anthropic_with(platform, key) as few:
        with pytest.raises(anthropic.RateLimitError):
            few.messages.batches.create(requests=MIXED)
        jobs: Any = few.get("/jobs", cast_to=object)
        assert jobs["data"] == []
