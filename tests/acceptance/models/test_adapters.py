"""Adapters on a whole platform, from folders and from S3: by all APIs each answers as its merged
model does, and tenants see their own alone."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from jobs.models.adapters import CONFIG, WEIGHTS, Adapter
from jobs.models.inputs.input_size import minilm_folder
from ops.supervisor.platform import Platform
from tests.support import clients
from tests.support.clients import http_of
from tests.support.generation import adapters, tiny_llama
from tests.support.generation.adapters import declared
from tests.support.models import custom_models
from tests.support.models.entries import model
from tests.support.packages import openai_with
from tests.support.platforms import Platforms, spec
from tests.support.stores.s3 import BUCKET, S3
from tests.support.wait import eventually

pytestmark = pytest.mark.nightly

TEXTS = ["The cat sat on the mat, and", "How many apples has Ada", "one two three"]
LAYERS = ("attention.self.query", "attention.self.value", "output.dense")
ASKED = {"temperature": 0, "max_tokens": 12}
# times: of a machine that is busy with all of these
TIMES: Any = {"target_ms": 60000, "target_ttft_ms": 600000, "limits": {"max_batch": 4}}
infer = partial(clients.infer, timeout_ms=120_000)


def uploaded(s3: S3, folder: Path, name: str) -> Adapter:
    """Stores an adapter in S3; returns its declaration."""
    for file in (CONFIG, WEIGHTS):
        s3.put(f"adapters/{name}/{file}", (folder / file).read_bytes())
    return declared(folder, name, path=f"s3://{BUCKET}/adapters/{name}")


def llamas(folder: Path, s3: S3) -> str:
    """A tiny Llama with four adapters in two slots, one of them broken, another one also merged. In
    S3 are copies of that under three names, one of which is declared with another checksum."""
    base, entries = tiny_llama.save(folder / "llama"), []
    shapes = adapters.llama_shapes(base)
    for seed, name in enumerate(("legal", "tax", "broken", "private"), start=1):
        saved = adapters.save(folder / name, shapes, seed=seed, rank=4 * seed)
        adapter = declared(saved, tenants=("acme",) if name == "private" else None)
        entries.append(
            adapters.entry(replace(adapter, sha256="0" * 64) if name == "broken" else adapter)
        )
    copies = [uploaded(s3, folder / "legal", name) for name in ("remote", "late", "swapped")]
    copies[-1] = replace(copies[-1], sha256="0" * 64)
    entries += map(adapters.entry, copies)
    options = tiny_llama.options(base) | {"adapter_slots": 2, "block_tokens": 4}
    one = adapters.merge_llama(base, folder / "legal", folder / "merged")
    tiny = model("tiny", "transformers", **TIMES, **options) + "".join(entries)
    return tiny + "\n" + model("merged-legal", "transformers", **TIMES, **tiny_llama.options(one))


def encoders(folder: Path) -> str:
    """MiniLM with an adapter, and with that merged."""
    from safetensors.torch import load_file, save_file

    weights = load_file(minilm_folder() / "model.safetensors")
    shapes = {
        key.removesuffix(".weight"): (weight.shape[1], weight.shape[0])
        for key, weight in weights.items()
        if key.startswith("encoder.") and key.endswith(tuple(f"{name}.weight" for name in LAYERS))
    }
    saved = adapters.save(folder / "news", shapes, seed=5, size=0.05)
    path = folder / "news.safetensors"
    save_file(adapters.merged(weights, saved), path)
    options = {"weights": str(path), "sha256": custom_models.digest(path), "threads": 1}
    entry = adapters.entry(declared(saved))
    minilm = model("minilm", "minilm", **TIMES, threads=1) + entry
    return minilm + "\n" + model("merged-news", "minilm", **TIMES, **options)


@pytest.fixture(scope="module")
def platform(
    platforms: Platforms, s3: S3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("models")
    asked = spec(llamas(folder, s3) + "\n" + encoders(folder), is_closed=True)
    with platforms.running(asked, s3_endpoint=s3.endpoint) as made:
        yield made


@pytest.fixture(scope="module")
def acme(platform: Platform) -> Iterator[httpx.Client]:
    with http_of(platform, "acme") as client:
        yield client


def text_of(client: httpx.Client, name: str, text: str) -> str:
    answer = infer(client, name, {"prompt": text, **ASKED})
    assert answer.status_code == 200, answer.text
    found: str = answer.json()["output"]["choices"][0]["text"]
    return found


def results(client: httpx.Client, name: str, items: list[Any]) -> list[Any]:
    wrapped = [{"input": item} for item in items]
    answer = client.post("/jobs", json={"model": name, "items": wrapped})
    assert answer.status_code == 202, answer.text
    job = answer.json()["id"]
    eventually(lambda: client.get(f"/jobs/{job}").json()["state"] == "completed")
    lines = client.get(f"/jobs/{job}/results").text.splitlines()
    return [json.loads(line)["output"] for line in lines]


def test_calls_and_jobs_of_an_adapter_equal_its_merged_model(acme: httpx.Client) -> None:
    expected = [text_of(acme, "merged-legal", text) for text in TEXTS]
    for other in ("tiny", "tax"):
        assert expected != [text_of(acme, other, text) for text in TEXTS]
    for name in ("tiny:legal", "legal"):
        assert [text_of(acme, name, text) for text in TEXTS] == expected
    outputs = results(acme, "tiny:legal", [{"prompt": text, **ASKED} for text in TEXTS])
    assert [one["choices"][0]["text"] for one in outputs] == expected
    assert {one["model"] for one in outputs} == {"tiny:legal@1"}


def test_vectors_of_an_adapter_equal_those_of_its_merged_model(acme: httpx.Client) -> None:
    expected = [infer(acme, "merged-news", text).json()["output"] for text in TEXTS]
    plain = infer(acme, "minilm", TEXTS[0]).json()["output"]
    assert plain != pytest.approx(expected[0], abs=1e-3)
    body = {"model": "news", "input": TEXTS}
    data = acme.post("/v1/embeddings", json=body).json()["data"]
    for found in ([one["embedding"] for one in data], results(acme, "minilm:news", TEXTS)):
        for vector, wanted in zip(found, expected, strict=True):
            assert vector == pytest.approx(wanted, abs=1e-5)


def test_an_adapter_streams_by_its_name_in_openais_api(
    platform: Platform, acme: httpx.Client
) -> None:
    with openai_with(platform, acme.headers["Authorization"].removeprefix("Bearer ")) as client:
        asked: Any = {"model": "tiny:legal", "prompt": TEXTS[0], "temperature": 0}
        chunks = list(client.completions.create(**asked, max_tokens=12, stream=True))
    text = "".join(chunk.choices[0].text for chunk in chunks if chunk.choices)
    assert text == text_of(acme, "merged-legal", TEXTS[0])
    assert {chunk.model for chunk in chunks} == {"tiny:legal"}


def test_adapters_of_others_look_like_models_that_are_not_there(
    platform: Platform, acme: httpx.Client
) -> None:
    with http_of(platform, "other") as other:
        listed = {one["id"] for one in acme.get("/v1/models").json()["data"]}
        assert {"tiny", "tiny:legal", "tiny:private", "tiny:private@1", "minilm:news"} <= listed
        hidden = {one["id"] for one in other.get("/v1/models").json()["data"]}
        assert listed - hidden == {"tiny:private", "tiny:private@1"}
        assert text_of(acme, "private", TEXTS[0])
        for name in ("tiny:private", "private"):
            refused = infer(other, name, {"prompt": "x"})
            absent = infer(other, "nothing", {"prompt": "x"})
            assert refused.status_code == absent.status_code == 404
            assert refused.json()["detail"] == absent.json()["detail"].replace("nothing", name)
            assert other.post("/jobs", json={"model": name, "items": [1]}).status_code == 404
            assert other.get(f"/v1/models/{name}").status_code == 404


def gets(s3: S3, name: str) -> int:
    """How often the weights of an adapter were read from S3."""
    return s3.asked.count(("GET", f"/{BUCKET}/adapters/{name}/{WEIGHTS}"))


def test_an_adapter_in_s3_is_copied_once_and_equals_its_merged_model(
    acme: httpx.Client, s3: S3
) -> None:
    expected = text_of(acme, "merged-legal", TEXTS[0])
    assert text_of(acme, "tiny:remote", TEXTS[0]) == expected
    for name in ("legal", "tax"):  # which take both slots
        text_of(acme, name, TEXTS[0])
    outputs = results(acme, "remote", [{"prompt": TEXTS[0], **ASKED}])
    assert outputs[0]["choices"][0]["text"] == expected
    assert gets(s3, "remote") == 1


def test_an_adapter_that_is_not_the_declared_one_fails_its_requests_alone(
    acme: httpx.Client, s3: S3
) -> None:
    for name in ("broken", "swapped", "swapped"):
        failed = infer(acme, name, {"prompt": "x", **ASKED})
        assert failed.status_code == 500
        assert "is not the file that was declared" in failed.text
    assert gets(s3, "swapped") == 2  # nothing of it is kept
    for name in ("legal", "remote"):
        assert text_of(acme, name, TEXTS[0]) == text_of(acme, "merged-legal", TEXTS[0])
    items = [{"input": {"prompt": "x"}}]
    job = acme.post("/jobs", json={"model": "broken", "items": items}).json()["id"]
    ended = eventually(lambda: (one := acme.get(f"/jobs/{job}").json())["counts"]["failed"] and one)
    assert ended["counts"]["succeeded"] == 0


def test_calls_of_an_adapter_are_503_while_s3_can_not_be_reached(
    acme: httpx.Client, s3: S3
) -> None:
    s3.fault = lambda method, path, key_id: "SlowDown" if "/late/" in path else None
    try:
        failed = infer(acme, "late", {"prompt": "x", **ASKED})
        assert failed.status_code == 503, failed.text
        assert text_of(acme, "legal", TEXTS[0]) == text_of(acme, "merged-legal", TEXTS[0])
    finally:
        s3.fault = lambda method, path, key_id: None
    assert text_of(acme, "late", TEXTS[0]) == text_of(acme, "merged-legal", TEXTS[0])


def test_usage_is_counted_by_adapter(platform: Platform) -> None:
    with http_of(platform, "billed") as billed:
        results(billed, "tiny:tax", [{"prompt": "x", **ASKED}])
        usage = billed.get("/usage", params={"by": "model"}).json()["data"]
        assert [one["model"] for one in usage] == ["tiny:tax"]
