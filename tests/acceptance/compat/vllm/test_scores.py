"""Documents by how well they answer a query, and scores of pairs, as clients of Cohere and vLLM ask
for them."""

from typing import Any

import httpx
import pytest

from ops.supervisor.platform import Platform
from tests.support.clients import infer
from tests.support.models.entries import model
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = model("common", "python", task="reranking", file="common.py")
FILES = {
    "common.py": '''
"""Scores texts by the words of the query that they have."""

SAMPLES = [{"query": "a", "documents": ["a b"]}]


def predict(batch):
    return [[score(one["query"], text) for text in one["documents"]] for one in batch]


def score(query, text):
    if text == "fewer":
        return "no number"
    return len({*query.split()} & {*text.split()}) / len(query.split())
'''
}
QUERY, DOCUMENTS = "a black cat", ["a dog", "a black cat", "black cat", "snow"]
SCORES = [1 / 3, 1.0, 2 / 3, 0.0]
RERANK = ["/v1/rerank", "/rerank", "/v2/rerank"]
SCORE = ["/v1/score", "/score"]


def asked(**more: Any) -> dict[str, Any]:
    return {"model": "common", "query": QUERY, "documents": DOCUMENTS, **more}


@pytest.mark.parametrize("path", RERANK)
def test_documents_come_by_their_scores_the_best_first(http: httpx.Client, path: str) -> None:
    answer = http.post(path, json=asked()).raise_for_status().json()
    assert answer["id"].startswith("rerank-")
    assert (answer["model"], answer["usage"]) == ("common", {"prompt_tokens": 0, "total_tokens": 0})
    results = answer["results"]
    assert [one["index"] for one in results] == [1, 2, 0, 3]
    assert [one["relevance_score"] for one in results] == pytest.approx(sorted(SCORES)[::-1])
    assert [one["document"]["text"] for one in results] == [DOCUMENTS[n] for n in (1, 2, 0, 3)]


def test_the_best_documents_come_as_objects_or_not_at_all(http: httpx.Client) -> None:
    objects = [{"text": text} for text in DOCUMENTS]
    more = asked(documents=objects, top_n=2, return_documents=False, model="common@1")
    answer = http.post("/v1/rerank", json=more).raise_for_status().json()
    assert answer["model"] == "common@1"
    assert [sorted(one) for one in answer["results"]] == [["index", "relevance_score"]] * 2
    known = infer(http, "common", {"query": QUERY, "documents": DOCUMENTS}).json()
    assert known["output"] == pytest.approx(SCORES)


@pytest.mark.parametrize("path", SCORE)
@pytest.mark.parametrize(
    ("one", "other", "scores"),
    [
        (QUERY, DOCUMENTS[0], SCORES[:1]),
        (QUERY, DOCUMENTS, SCORES),
        ([QUERY], DOCUMENTS, SCORES),
        (["a b", "c"], ["b", "c"], [0.5, 1.0]),
    ],
)
def test_texts_are_scored_in_pairs(
    http: httpx.Client, path: str, one: Any, other: Any, scores: list[float]
) -> None:
    for names in (("text_1", "text_2"), ("queries", "documents")):
        body = {"model": "common", **dict(zip(names, (one, other), strict=True))}
        answer = http.post(path, json=body).raise_for_status().json()
        assert (answer["object"], answer["model"]) == ("list", "common")
        assert [part["index"] for part in answer["data"]] == list(range(len(scores)))
        assert [part["score"] for part in answer["data"]] == pytest.approx(scores)


@pytest.mark.parametrize("path", [*RERANK, *SCORE])
def test_a_repeated_request_gets_the_first_ones_answer(http: httpx.Client, path: str) -> None:
    body = asked() if path in RERANK else {"model": "common", "text_1": "a", "text_2": ["a", "b"]}
    key = {"Idempotency-Key": f"scores{path.replace('/', '-')}"}
    first, again = (http.post(path, json=body, headers=key).raise_for_status() for _ in range(2))
    assert first.json() == again.json()
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/v1/rerank", asked(documents=[]), 400, "at least 1"),
        ("/v2/rerank", asked(documents=["x"] * 1001), 400, "at most 1000"),
        ("/rerank", asked(max_tokens_per_doc=5), 400, "max_tokens_per_doc"),
        ("/rerank", asked(query="\0"), 400, "query holds a NUL"),
        ("/rerank", asked(model="echo"), 400, "scores no pairs"),
        ("/rerank", asked(model="nobody"), 404, "nobody"),
        ("/rerank", asked(documents=["fewer"]), 500, "no list of scores"),
        ("/score", {"model": "common", "text_1": ["a", "b"], "text_2": "c"}, 400, "2 texts"),
        ("/v1/score", {"model": "common", "text_1": "a"}, 400, "text_2"),
    ],
)
def test_what_is_wrong_is_said_in_openais_form(
    http: httpx.Client, path: str, body: Any, status: int, said: str
) -> None:
    answer = http.post(path, json=body)
    assert (answer.status_code, said in answer.json()["error"]["message"]) == (status, True)


def test_a_large_body_is_read_in_another_process(http: httpx.Client, platform: Platform) -> None:
    long = asked(documents=[*DOCUMENTS, "x " * 40_000])
    answer = http.post("/v1/rerank", json=long).raise_for_status().json()
    assert [one["index"] for one in answer["results"]][:3] == [1, 2, 0]
