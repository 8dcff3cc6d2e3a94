"""Lists of texts as items of jobs."""

from typing import Any

import numpy as np

from millrace import Client
from ops.supervisor.platform import Platform
from tests.acceptance.compat.embeddings import embeddings
from tests.acceptance.compat.embeddings.embeddings import CAT_IDS, CLOSE, TEXTS
from tests.support.children import kill
from tests.support.jobs import begun, finish
from tests.support.platforms import CHATTING
from tests.support.wait import eventually

PLATFORM = CHATTING
MODELS = embeddings.MODELS


def submit(client: Client, items: list[Any], **order: Any) -> str:
    id: str = client.jobs.submit(inputs=items, **order)["id"]
    return id


def results(client: Client, job: str) -> list[Any]:
    return list(client.jobs.results(job, wait=False))


def test_a_list_in_a_job_comes_back_as_one_result(client: Client, vectors: dict[str, Any]) -> None:
    items = [TEXTS[0], TEXTS, {"input": [CAT_IDS, TEXTS[1]], "params": {"dimensions": 5}}, CAT_IDS]
    job = submit(client, items, model="minilm")
    assert client.jobs.wait(job)["counts"]["succeeded"] == 4
    text, list_, cut, ids = results(client, job)
    np.testing.assert_allclose(text["output"], vectors[TEXTS[0]], **CLOSE)
    np.testing.assert_allclose(ids["output"], vectors[TEXTS[0]], **CLOSE)
    np.testing.assert_allclose(list_["output"], [vectors[text] for text in TEXTS], **CLOSE)
    assert np.shape(cut["output"]) == (2, 5)
    tokens = [client.infer("minilm", text)["usage"]["tokens"] for text in TEXTS]
    assert list_["usage"] == {"tokens": sum(tokens)}


def test_a_list_that_holds_what_fails_fails_as_one(client: Client) -> None:
    items = [["x", "broken", "y"], ["x", 7], ["x"] * 2049, ["fine"]]
    job = submit(client, items, model="slow", on_invalid="fail_item")
    assert client.jobs.wait(job)["counts"] == {
        "total": 4, "pending": 0, "running": 0,
        "succeeded": 1, "failed": 3, "cancelled": 0, "expired": 0,
    }  # fmt: skip
    broken, wrong, long, fine = results(client, job)
    assert broken["error"]["message"] == "input 1 of the list: it is broken"
    assert [one["error"]["code"] for one in (broken, wrong, long)] == [
        "engine_error",
        "invalid_input",
        "invalid_input",
    ]
    assert fine["output"] == [[4.0, 1.0]]


def test_a_worker_killed_among_lists_loses_and_doubles_nothing(
    platform: Platform, client: Client
) -> None:
    lists = [[f"text {n} of list {m}" for n in range(50)] for m in range(24)]
    job = submit(client, lists, model="minilm")
    eventually(lambda: begun(client, job))
    kill(platform)
    assert client.jobs.get(job)["counts"]["succeeded"] < len(lists)

    found = finish(platform, client, job)
    assert [line["seq"] for line in found] == list(range(len(lists)))
    assert {np.shape(line["output"]) for line in found} == {(50, 384)}
    alone = client.infer("minilm", lists[17][43])["output"]
    np.testing.assert_allclose(found[17]["output"][43], alone, **CLOSE)
