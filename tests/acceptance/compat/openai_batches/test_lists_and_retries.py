"""Batches under /v1 in lists, under their native names, of other tenants, and asked for twice."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest

from jobs import ids
from ops.supervisor.platform import Platform
from tests.acceptance.compat.openai_batches import batches
from tests.acceptance.compat.openai_batches.batches import (
    create,
    embedding,
    ended,
    native_of,
    upload,
)
from tests.support.packages import openai_of, openai_with
from tests.support.platforms import CHATTING
from tests.support.wait import PATIENCE_S, eventually

PLATFORM = CHATTING
MODELS = batches.MODELS

NOWHERE = "batch_01aryz6s41tsv4rrffq69g5fav"


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


def test_another_tenants_batch_is_one_that_does_not_exist(
    client: openai.OpenAI, platform: Platform
) -> None:
    made = create(client, embedding("a", "x"))
    with openai_of(platform, "stranger") as stranger:
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
        with openai_with(platform, client.api_key) as own:
            together.wait(PATIENCE_S)
            more = {"x-stainless-retry-count": str(n)}
            wanted: Any = {"endpoint": "/v1/embeddings", "completion_window": "2h"}
            return own.batches.create(input_file_id=id, **wanted, extra_headers=more).id

    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(ask, range(1, 9)))
    assert len(made) == 1
