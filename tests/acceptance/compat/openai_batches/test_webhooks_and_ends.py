"""Ends of batches under /v1: their webhooks, and that nothing is left open."""

import httpx
import openai
import pytest
from sqlalchemy import text

from ops.supervisor.platform import Platform
from tests.acceptance.compat.openai_batches import batches
from tests.acceptance.compat.openai_batches.batches import (
    ENDED,
    create,
    embedding,
    ended,
    native_of,
)
from tests.support.jobs import assert_invariants
from tests.support.packages import openai_of
from tests.support.platforms import CHATTING, transaction
from tests.support.servers.receiver import Receiver
from tests.support.wait import eventually

PLATFORM = CHATTING
MODELS = batches.MODELS


def test_the_end_of_a_batch_is_told_as_openai_does(platform: Platform, receiver: Receiver) -> None:
    with openai_of(platform, "told") as client, native_of(platform, client) as native:
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


def test_nothing_of_a_batch_is_left_open(
    platform: Platform, client: openai.OpenAI, native: httpx.Client
) -> None:
    for lines in ([embedding("a", "x"), embedding("b", "fail")], [b"no line"]):
        ended(client, create(client, *lines))
    tenant = native.get("/usage", params={"by": "tenant"}).json()["data"][0]["tenant"]
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
