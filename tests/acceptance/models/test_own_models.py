"""Models that people bring, on a whole platform: one call and one job of each."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.models import custom_models
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
    code, entry = (
        re.findall(rf"```{word}\n(.*?)```", PAGE, re.S)[0] for word in ("python", "toml")
    )
    (own_models.parent / "sentiment.py").write_text(code)
    models = own_models.with_name("with-sentiment.toml")
    unchecked = custom_models.UNCHECKED
    away = custom_models.entry(
        "away", "huggingface", 'task = "tokens"', path="nowhere", threads=1, **unchecked
    )
    models.write_text(own_models.read_text() + entry + away)
    with platforms.running(spec(SAMPLES), models=models) as started:
        yield started


def infer(platform: Platform, model: str, value: Any, **params: Any) -> httpx.Response:
    body = {"model": model, "input": value, "params": params}
    return httpx.post(f"{platform.url}/infer", json=body)


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == (pytest.approx(other, abs=1e-5) if isinstance(one, float) else other))


@pytest.mark.parametrize("model", INPUTS)
def test_a_call_and_a_job_have_the_same_answers(
    platform: Platform, client: Client, model: str
) -> None:
    called = []
    for value in INPUTS[model]:
        answer = infer(platform, model, value)
        assert answer.status_code == 200, answer.text
        called.append(answer.json()["output"])
    job = client.jobs.submit(model, INPUTS[model])
    assert client.jobs.wait(job["id"])["counts"]["succeeded"] == len(called)
    results = [result["output"] for result in client.jobs.results(job["id"], wait=False)]
    assert same(results, called)


def test_outputs_are_those_of_the_models(platform: Platform) -> None:
    assert infer(platform, "python", {"x": 1}).json()["output"] == "{'x': 1}!"
    import torch

    expected = custom_models.network()(torch.tensor([VECTORS[0]]).float())[0].tolist()
    for model in ("torch", "export"):
        assert infer(platform, model, VECTORS[0]).json()["output"] == pytest.approx(expected)
    labels = infer(platform, "classification", "a cat", top_k=2).json()["output"]
    assert [*labels[0]] == ["label", "score"]
    assert len(labels) == 2
    assert len(infer(platform, "reranking", PAIRS[0]).json()["output"]) == 3


@pytest.mark.parametrize(
    ("model", "value", "said"),
    [
        ("python-text", 5, "takes a string"),
        ("reranking", "a cat", "query and documents"),
        ("reranking", {"query": "a", "documents": ["b", 1]}, "a list of strings"),
        ("classification", ["a cat"], "takes a string"),
    ],
)
def test_an_input_that_the_task_doesnt_take_is_refused_before_it_is_queued(
    platform: Platform, model: str, value: Any, said: str
) -> None:
    answer = infer(platform, model, value)
    assert answer.status_code == 422
    assert said in answer.text


def test_what_own_code_breaks_on_is_told_with_its_line(platform: Platform) -> None:
    answer = infer(platform, "python", "raise")
    assert answer.status_code == 500
    [error] = answer.json()["errors"]
    line = (
        custom_models.PYTHON.splitlines().index('        raise RuntimeError("can\'t stand it")') + 1
    )
    assert error["code"] == "engine_error"
    assert error["message"] == f"own.py:{line}: RuntimeError: can't stand it"


def test_a_tensor_of_another_shape_is_refused(platform: Platform) -> None:
    for model in ("torch", "export"):
        answer = infer(platform, model, [1, 2, 3])
        assert answer.json()["errors"][0]["message"] == "the input has shape [3], not [4]"


def test_usage_counts_tokens_where_texts_are_tokenized(platform: Platform) -> None:
    assert infer(platform, "embedding", "a cat").json()["usage"] == {"tokens": 4}
    cut = infer(platform, "embedding", "word " * 100, truncate=10).json()["usage"]
    assert cut == {"tokens": 10}


def test_a_model_whose_folder_is_not_there_says_so(platform: Platform) -> None:
    answer = infer(platform, "away", "a cat")
    assert answer.status_code == 503
    assert answer.json()["code"] == "not_configured"
    assert "config.json is not here" in answer.json()["detail"]
    found = httpx.get(f"{platform.url}/models").json()["data"]
    [away] = [model for model in found if model["name"] == "away"]
    assert "there is no folder" in away["error"]
