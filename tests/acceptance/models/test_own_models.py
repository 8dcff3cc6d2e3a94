"""Models that people bring, on a whole platform: one call and one job of each."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, OpenAI

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.cases import each
from tests.support.clients import infer
from tests.support.models import custom_models
from tests.support.models.entries import model
from tests.support.packages import openai_batch
from tests.support.platforms import SAMPLES, Platforms, spec

pytestmark = pytest.mark.nightly

PAGE = (Path(__file__).parents[3] / "ops" / "docs" / "how-to" / "models" / "models.md").read_text()
TEXTS = ["a cat", "the black dog " * 9, "word"]
VECTORS = [[1, 2, 3, 4], [0.5, 0, 0, -1], [0, 0, 0, 0]]
PAIRS = [{"query": "a cat", "documents": TEXTS[:n]} for n in (3, 1, 2)]
INPUTS: dict[str, list[Any]] = {
    "python": [1, "b", [2]],
    "python-text": TEXTS,
    "torch": VECTORS,
    "torch-text": TEXTS,
    "export": VECTORS,
    "classification": TEXTS,
    "tokens": TEXTS,
    "embedding": TEXTS,
    "reranking": PAIRS,
    "sentiment": ["a good day", "bad bad bad", ""],
}


@pytest.fixture(scope="module")
def platform(platforms: Platforms, own_models: Path) -> Iterator[Platform]:
    """A platform with the samples and the example of the page on models, as it stands there."""
    found = (re.findall(rf"```{word}\n(.*?)```", PAGE, re.S) for word in ("python", "toml"))
    (code, *_), (entry, *_) = found
    (own_models.parent / "sentiment.py").write_text(code)
    models = own_models.with_name("with-sentiment.toml")
    options = {"path": "nowhere", "threads": 1, **custom_models.UNCHECKED}
    away = model("away", "huggingface", task="tokens", **options)
    folder = own_models.with_name("embedding")
    options = {"path": str(folder), "threads": 1, **custom_models.checksums(folder)}
    cuts = model("cutting", "huggingface", task="embedding", on_too_long="truncate", **options)
    models.write_text(own_models.read_text() + entry + away + cuts)
    with platforms.running(spec(SAMPLES), models=models) as started:
        yield started


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == (pytest.approx(other, abs=1e-5) if isinstance(one, float) else other))


@pytest.mark.parametrize("model", INPUTS)
def test_a_call_and_a_job_have_the_same_answers(
    http: httpx.Client, client: Client, model: str
) -> None:
    called = []
    for value in INPUTS[model]:
        answer = infer(http, model, value)
        assert answer.status_code == 200, answer.text
        called.append(answer.json()["output"])
    job = client.jobs.submit(model, INPUTS[model])
    assert client.jobs.wait(job["id"])["counts"]["succeeded"] == len(called)
    results = [result["output"] for result in client.jobs.results(job["id"], wait=False)]
    assert same(results, called)


def test_outputs_and_usage_are_those_of_the_models(http: httpx.Client) -> None:
    def answer(model: str, value: Any, **params: Any) -> Any:
        return infer(http, model, value, params=params).json()

    assert answer("python", {"x": 1})["output"] == "{'x': 1}!"
    import torch

    expected = custom_models.network()(torch.tensor([VECTORS[0]]).float())[0].tolist()
    for name in ("torch", "export"):
        assert answer(name, VECTORS[0])["output"] == pytest.approx(expected)
    labels = answer("classification", "a cat", top_k=2)["output"]
    assert [*map(list, labels)] == [["label", "score"]] * 2
    assert len(answer("reranking", PAIRS[0])["output"]) == 3
    assert answer("embedding", "a cat")["usage"] == {"tokens": 4}
    cut = {"tokens": 10, "truncated": 92}
    assert answer("embedding", "word " * 100, truncate=10)["usage"] == cut


def test_an_input_that_the_model_doesnt_take_is_refused(http: httpx.Client) -> None:
    shape = "the input has shape [3], not [4]"
    refused: list[tuple[str, Any, str]] = [
        ("python-text", 5, "takes a string"),
        ("reranking", "a cat", "query and documents"),
        ("reranking", {"query": "a", "documents": ["b", 1]}, "a list of strings"),
        ("classification", ["a cat"], "takes a string"),
        ("torch", [1, 2, 3], shape),
        ("export", [1, 2, 3], shape),
    ]
    for (name, value, said), case in each(refused):
        with case:
            answer = infer(http, name, value)
            assert (answer.status_code, said in answer.text) == (422, True), answer.text


def test_what_own_code_breaks_on_is_told_with_its_line(http: httpx.Client) -> None:
    answer = infer(http, "python", "raise")
    assert answer.status_code == 500
    [error] = answer.json()["errors"]
    lines = custom_models.PYTHON.splitlines()
    line = lines.index('        raise RuntimeError("can\'t stand it")') + 1
    assert error["code"] == "engine_error"
    assert error["message"] == f"own.py:{line}: RuntimeError: can't stand it"


def test_a_model_whose_folder_is_not_there_says_so(http: httpx.Client) -> None:
    answer = infer(http, "away", "a cat")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_configured")
    assert "config.json is not here" in answer.json()["detail"]
    [away] = [model for model in http.get("/models").json()["data"] if model["name"] == "away"]
    assert "there is no folder" in away["error"]


LONG = "word " * 100
WHOLE, MOST = 102, custom_models.POSITIONS  # tokens of LONG, and of the model


def test_a_text_that_is_too_long_fails_alone_in_calls_jobs_and_batches(
    http: httpx.Client, client: Client, openai_client: OpenAI
) -> None:
    said = f"maximum context length is {MOST} tokens. However, you requested {WHOLE} tokens"
    refused = infer(http, "embedding", LONG)
    assert (refused.status_code, said in refused.text) == (422, True), refused.text
    with pytest.raises(BadRequestError) as told:
        openai_client.embeddings.create(model="embedding", input=["a cat", LONG])
    assert told.value.code == "context_length_exceeded"

    cut_to = {-1: MOST, 10: 10}
    for most, tokens in cut_to.items():
        more = {"truncate_prompt_tokens": most}
        answer = openai_client.embeddings.create(model="embedding", input=LONG, extra_body=more)
        usage = answer.usage.to_dict()
        assert (usage["prompt_tokens"], usage["truncated"]) == (tokens, WHOLE - tokens)

    asked = ["a cat", LONG, {"input": LONG, "params": {"truncate": 10}}, "the dog"]
    job = client.jobs.wait(client.jobs.submit("embedding", asked)["id"])
    assert (job["counts"]["succeeded"], job["counts"]["failed"], job["truncated"]) == (3, 1, 1)
    [one, failed, cut, last] = client.jobs.results(job["id"], wait=False)
    assert (failed["error"]["code"], failed["attempts"]) == ("invalid_input", 1)
    assert said in failed["error"]["message"]
    assert cut["usage"] == {"tokens": 10, "truncated": WHOLE - 10}
    assert [result["usage"] for result in (one, last)] == [{"tokens": 4}] * 2
    again = client.jobs.wait(client.jobs.retry(job["id"])["id"])
    assert (again["generation"], again["counts"]["failed"], again["truncated"]) == (2, 1, 1)

    bodies: list[Any] = [{"model": "embedding", "input": text} for text in ("a cat", LONG, LONG)]
    bodies[2]["truncate_prompt_tokens"] = -1
    good, [bad] = openai_batch(openai_client, "/v1/embeddings", *bodies)
    usages = [line["response"]["body"]["usage"] for line in good]
    assert [usage.get("truncated") for usage in usages] == [None, WHOLE - MOST]
    assert bad["response"]["status_code"] == 400
    assert bad["response"]["body"]["error"]["code"] == "context_length_exceeded"


def test_a_text_that_was_cut_says_so_in_calls_jobs_and_batches(
    http: httpx.Client, client: Client, openai_client: OpenAI
) -> None:
    called = infer(http, "cutting", LONG).json()
    assert called["usage"] == {"tokens": MOST, "truncated": WHOLE - MOST}
    assert "truncated" not in called["timing"]
    assert infer(http, "cutting", "a cat").json()["usage"] == {"tokens": 4}
    usage = openai_client.embeddings.create(model="cutting", input=[LONG, LONG, "a"]).usage
    assert usage.to_dict()["truncated"] == 2 * (WHOLE - MOST)
    job = client.jobs.wait(client.jobs.submit("cutting", ["a cat", LONG])["id"])
    assert (job["counts"]["succeeded"], job["truncated"]) == (2, 1)
    page = http.get(f"/dashboard/jobs/{job['id']}").text
    assert "1 truncated" in page
    bodies = ({"model": "cutting", "input": text} for text in ("a cat", LONG))
    lines, _ = openai_batch(openai_client, "/v1/embeddings", *bodies)
    usages = [line["response"]["body"]["usage"] for line in lines]
    assert [usage.get("truncated") for usage in usages] == [None, WHOLE - MOST]
