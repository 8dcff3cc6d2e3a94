"""Ends of batches under /v1: their webhooks, and that nothing is left open."""

from collections.abc import Iterator

import httpx
import openai
import pytest
from sqlalchemy import text

from jobs.store import invariants
from ops.supervisor.platform import Platform
from tests.acceptance.compat.openai_batches import batches
from tests.acceptance.compat.openai_batches.batches import (
    ENDED,
    client_of,
    create,
    embedding,
    native_of,
)
from tests.support.platforms import CHATTING, database_of
from tests.support.servers.receiver import Receiver, receiving
from tests.support.wait import eventually

PLATFORM = CHATTING
MODELS = batches.MODELS


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
