"""POST /v1/embeddings, asked by the openai package as it is; and lists of texts in jobs."""

import json
import os
import signal
from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from openai import OpenAI
from openai.types import CreateEmbeddingResponse

from ops.client.client import Client
from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.models.embedding import LAUNCH_S, LAUNCHES, RELEASED
from tests.support.platforms import spec
from tests.support.wait import eventually

MODELS = """
[[model]]
name = "minilm"
version = "1"
engine = "minilm"
target_ms = 5000
limits = { max_batch = 64, max_tokens = 512, in_flight = 2, slice_items = 256 }

[[model]]
name = "slow"
version = "1"
engine = "function"
task = "embedding"
target_ms = 400
options = { function = "tests.support.models.embedding:lengths", samples = ["a text"] }
limits = { max_batch = 4, in_flight = 1 }

[[model]]
name = "echo"
version = "1"
engine = "echo"
"""
TEXTS = ["a black cat", "how do I parse a JSON document", "Grüße aus Köln"]
CAT_IDS = [1037, 2304, 4937]  # of the first of them
CLOSE = {"rtol": 0, "atol": 1e-5}
PLATFORM = spec(MODELS, is_closed=True, lease_s=3.0)


@pytest.fixture(scope="module")
def key(platform: Platform) -> str:
    return make_key_at(platform.settings.database_url, "acme")[0]


def sdk(platform: Platform, key: str) -> OpenAI:
    return OpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0)


@pytest.fixture(scope="module")
def openai_client(platform: Platform, key: str) -> Iterator[OpenAI]:
    with sdk(platform, key) as made:
        yield made


@pytest.fixture(scope="module")
def client(platform: Platform, key: str) -> Iterator[Client]:
    made = Client(platform.url, key)
    yield made
    made.close()


@pytest.fixture(scope="module")
def vectors(client: Client) -> dict[str, Any]:
    """Vectors of the texts, as POST /infer returns them."""
    return {text: client.infer("minilm", text)["output"] for text in TEXTS}


def embedded(answer: CreateEmbeddingResponse) -> list[list[float]]:
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return [one.embedding for one in answer.data]


@pytest.mark.parametrize("how", [{}, {"encoding_format": "float"}, {"user": "me"}])
@pytest.mark.parametrize(
    ("asked", "texts"),
    [
        ("a black cat", TEXTS[:1]),
        (TEXTS, TEXTS),
        (TEXTS[:1], TEXTS[:1]),
        (CAT_IDS, TEXTS[:1]),
        ([101, *CAT_IDS, 102], TEXTS[:1]),
        ([CAT_IDS, CAT_IDS], TEXTS[:1] * 2),
        (["Grüße aus Köln", CAT_IDS], [TEXTS[2], TEXTS[0]]),
    ],
)
def test_every_kind_of_input_has_the_vectors_that_infer_gives(
    openai_client: OpenAI, vectors: dict[str, Any], asked: Any, texts: list[str], how: Any
) -> None:
    answer = openai_client.embeddings.create(model="minilm", input=asked, **how)
    np.testing.assert_allclose(embedded(answer), [vectors[text] for text in texts], **CLOSE)
    assert (answer.object, answer.model) == ("list", "minilm")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens


SPEC = Path(__file__).parents[3] / "shared/spec/openai-files-batches-embeddings-models.openapi.json"


@pytest.mark.skipif(not SPEC.exists(), reason=f"OpenAI's document is not here: {SPEC}")
def test_the_answer_is_as_openai_documents_it(openai_client: OpenAI) -> None:
    """The schema is OpenAI's own: fields that it doesn't name aren't there."""
    schemas = json.loads(SPEC.read_text())["components"]["schemas"]
    answer = openai_client.embeddings.with_raw_response.create(
        model="minilm", input=TEXTS, encoding_format="float"
    )
    found = json.loads(answer.content)
    assert found.keys() == schemas["CreateEmbeddingResponse"]["properties"].keys()
    for one in found["data"]:
        assert one.keys() == schemas["Embedding"]["properties"].keys()
    with pytest.raises(openai.BadRequestError) as caught:
        openai_client.embeddings.create(model="minilm", input=[])
    assert caught.value.response.json()["error"].keys() == schemas["Error"]["properties"].keys()


def test_usage_counts_the_tokens_of_all_inputs(openai_client: OpenAI, client: Client) -> None:
    answer = openai_client.embeddings.create(model="minilm@1", input=TEXTS)
    alone = sum(client.infer("minilm", text)["usage"]["tokens"] for text in TEXTS)
    assert (answer.usage.total_tokens, answer.model) == (alone, "minilm@1")


def test_base64_holds_the_same_floats(platform: Platform, key: str) -> None:
    def ask(how: str) -> Any:
        body = {"model": "minilm", "input": TEXTS[1], "encoding_format": how}
        headers = {"Authorization": f"Bearer {key}"}
        answer = httpx.post(f"{platform.url}/v1/embeddings", json=body, headers=headers)
        return answer.json()["data"][0]["embedding"]

    packed = np.frombuffer(b64decode(ask("base64")), "<f4")
    np.testing.assert_array_equal(packed, np.array(ask("float"), "<f4"))


@pytest.mark.parametrize("dimensions", [1, 7, 384])
def test_vectors_are_cut_and_normalized_again(
    openai_client: OpenAI, vectors: dict[str, Any], dimensions: int
) -> None:
    answer = openai_client.embeddings.create(model="minilm", input=TEXTS, dimensions=dimensions)
    cut = np.array([vectors[text][:dimensions] for text in TEXTS])
    expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose(embedded(answer), expected, **CLOSE)


def test_a_list_of_the_longest_kind_stays_in_order(openai_client: OpenAI) -> None:
    """Some launches of many lengths: their answers come in any order."""
    texts = ["word " * (n % 7) for n in range(2048)]
    found = embedded(openai_client.embeddings.create(model="minilm", input=texts))
    np.testing.assert_allclose(found, [found[n % 7] for n in range(2048)], **CLOSE)
    assert len({tuple(np.round(vector, 3)) for vector in found[:7]}) == 7


def test_a_list_waits_where_its_calls_would_come_too_late(openai_client: OpenAI) -> None:
    """Twenty launches are more than the target allows; one after the other they are let in."""
    texts = ["x" * n for n in range(80)]
    assert 80 / 4 * LAUNCH_S > 0.4
    answer = openai_client.embeddings.create(model="slow", input=texts)
    assert embedded(answer) == [[float(n), 1.0] for n in range(80)]
    assert answer.usage.total_tokens == 0  # it counts characters


@pytest.mark.parametrize(
    ("asked", "param", "words"),
    [
        ({"input": 7}, "input", "a list of either"),
        ({"input": None}, "input", "a list of either"),
        ({"input": {"input": "x"}}, "input", "a list of either"),
        ({"input": []}, "input", "empty"),
        ({"input": ["x", 7]}, "input", "input 1 of the list"),
        ({"input": ["x", []]}, "input", "input 1 of the list"),
        ({"input": [["x"]]}, "input", "whole number|token ids"),
        ({"input": [1, "x"]}, "input", "token id 1"),
        ({"input": [1, True]}, "input", "token id 1"),
        ({"input": [30522]}, "input", "0 to 30521"),
        ({"input": [[1], [-1]]}, "input", "input 1 of the list"),
        ({"input": [1] * 8193}, "input", "8192"),
        ({"input": ["x"] * 2049}, "input", "2048"),
        ({"input": ["x", "a\0b"]}, "input", "input 1 of the list.*NUL"),
        ({"dimensions": 0}, "dimensions", "greater"),
        ({"dimensions": 385}, "dimensions", "1 to 384"),
        ({"dimensions": "7"}, "dimensions", "integer"),
        ({"encoding_format": "hex"}, "encoding_format", "float"),
        ({"extra_body": {"timeout_ms": 0}}, "timeout_ms", "greater"),
        ({"extra_body": {"surprise": 1}}, "surprise", "not permitted"),
        ({"model": "echo"}, "model", "embeddings"),
        ({"model": "slow", "input": [1]}, "input", "takes no token ids"),
        ({"model": ""}, "model", "at least 1"),
    ],
)
def test_what_is_wrong_is_a_bad_request_that_names_it(
    openai_client: OpenAI, asked: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        openai_client.embeddings.create(**{"model": "minilm", "input": "x", **asked})
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")


def test_a_model_that_is_not_there_is_not_found(openai_client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="no model 'gone'"):
        openai_client.embeddings.create(model="gone", input="x")


def test_a_wrong_key_and_one_without_the_scope_get_nothing(platform: Platform, key: str) -> None:
    reads, _ = make_key_at(platform.settings.database_url, "acme", scopes=frozenset({"read"}))
    for other, refused in (
        ("mk_" + "a" * 43, openai.AuthenticationError),
        (reads, openai.PermissionDeniedError),
    ):
        with sdk(platform, other) as made, pytest.raises(refused):
            made.embeddings.create(model="minilm", input="x")


def test_a_body_that_is_too_large_is_refused(openai_client: OpenAI) -> None:
    with pytest.raises(openai.APIStatusError, match="4,194,304 bytes") as caught:
        openai_client.embeddings.create(model="minilm", input=["x" * 4096] * 1100)
    assert caught.value.status_code == 413


def test_what_takes_too_long_ends_at_its_deadline(openai_client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        openai_client.embeddings.create(
            model="slow", input=["x"] * 160, extra_body={"timeout_ms": 600}
        )
    assert caught.value.status_code == 504
    with pytest.raises(openai.APIStatusError):
        openai_client.embeddings.create(model="slow", input="x", extra_body={"timeout_ms": 1})


def assert_answers_again(client: OpenAI) -> None:
    """Checks that the model answers, so that all calls before have been launched or dropped."""
    patient = client.with_options(max_retries=9)
    assert embedded(patient.embeddings.create(model="slow", input="after")) == [[5.0, 1.0]]


def launched(platform: Platform, prefix: str) -> int:
    lines = (platform.settings.home / LAUNCHES).read_text().splitlines()
    return sum(line.startswith(prefix) for line in lines)


def test_where_one_fails_all_do_and_the_others_are_taken_back(
    platform: Platform, openai_client: OpenAI
) -> None:
    texts = [f"spared {n}" for n in range(59)]
    with pytest.raises(openai.InternalServerError, match="it is broken"):
        openai_client.embeddings.create(model="slow", input=["broken", *texts])
    assert_answers_again(openai_client)
    assert launched(platform, "spared") < 30


def test_a_client_that_goes_takes_all_of_its_list_back(
    platform: Platform, openai_client: OpenAI
) -> None:
    texts = [f"left {n}" for n in range(60)]
    released = platform.settings.home / RELEASED
    with pytest.raises(openai.APITimeoutError):
        openai_client.with_options(timeout=0.5).embeddings.create(
            model="slow", input=["hold", *texts]
        )
    released.touch()
    assert_answers_again(openai_client)
    assert launched(platform, "left") < 10


# -- quotas and keys


@pytest.fixture
def limited(platform: Platform, request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    """Makes a client of a tenant with these limits."""
    url = platform.settings.database_url
    admin = {"Authorization": f"Bearer {make_key_at(url, 'admins', role='admin')[0]}"}
    tenant = request.node.name.partition("[")[0][:60].replace("_", "-")
    key, _ = make_key_at(url, tenant)
    path, data = f"{platform.url}/tenants/{tenant}/limits", {"data": [request.param]}
    assert httpx.put(path, json=data, headers=admin).status_code == 200
    with sdk(platform, key) as made:
        yield made


@pytest.mark.parametrize("limited", [{"requests_per_s": 0.01}], indirect=True)
def test_a_list_is_one_request(limited: OpenAI) -> None:
    answer = limited.embeddings.with_raw_response.create(model="minilm", input=TEXTS)
    assert answer.headers["RateLimit"].startswith('"requests";r=0')
    assert len(answer.parse().data) == len(TEXTS)
    with pytest.raises(openai.RateLimitError) as caught:
        limited.embeddings.create(model="minilm", input=TEXTS)
    assert int(caught.value.response.headers["Retry-After-Ms"]) > 10_000


@pytest.mark.parametrize("limited", [{"tokens_per_s": 20}], indirect=True)
def test_a_list_is_charged_with_all_its_tokens(limited: OpenAI) -> None:
    answer = limited.embeddings.with_raw_response.create(model="minilm", input=TEXTS * 20)
    tokens = answer.parse().usage.total_tokens
    assert tokens > 400
    seconds = int(answer.headers["RateLimit"].rpartition("t=")[2])
    assert seconds == pytest.approx(tokens / 20, abs=3)
    with pytest.raises(openai.RateLimitError):
        limited.embeddings.create(model="minilm", input="x")


@pytest.mark.parametrize("limited", [{"calls_in_flight": 2}], indirect=True)
def test_a_list_has_no_more_calls_in_flight_than_its_tenant_may(limited: OpenAI) -> None:
    answer = limited.embeddings.create(model="slow", input=["x" * n for n in range(12)])
    assert embedded(answer) == [[float(n), 1.0] for n in range(12)]


def test_a_key_makes_one_request(openai_client: OpenAI, client: Client) -> None:
    def ask(text: str) -> Any:
        return openai_client.embeddings.with_raw_response.create(
            model="minilm", input=text, extra_headers={"Idempotency-Key": '"once"'}
        )

    first, again = ask("one"), ask("one")
    assert first.content == again.content
    assert (first.headers.get("Idempotency-Replayed"), again.headers["Idempotency-Replayed"]) == (
        None,
        "true",
    )
    with pytest.raises(openai.UnprocessableEntityError):
        ask("another")


def test_infer_takes_token_ids_and_no_list(
    client: Client, vectors: dict[str, Any], platform: Platform, key: str
) -> None:
    found = client.infer("minilm", CAT_IDS)
    np.testing.assert_allclose(found["output"], vectors[TEXTS[0]], **CLOSE)
    assert found["usage"] == {"tokens": 5}
    refused = httpx.post(
        f"{platform.url}/infer",
        json={"model": "minilm", "input": TEXTS},
        headers={"Authorization": f"Bearer {key}"},
    )
    assert refused.status_code == 422
    assert "POST /v1/embeddings" in refused.json()["detail"]


# -- lists in jobs


def submit(client: Client, items: list[Any], **order: Any) -> str:
    id: str = client.submit([json.dumps(item).encode() + b"\n" for item in items], **order)["id"]
    return id


def results(client: Client, job: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in client.results(job)]


def test_a_list_in_a_job_comes_back_as_one_result(client: Client, vectors: dict[str, Any]) -> None:
    items = [TEXTS[0], TEXTS, {"input": [CAT_IDS, TEXTS[1]], "params": {"dimensions": 5}}, CAT_IDS]
    job = submit(client, items, model="minilm")
    assert client.wait(job)["counts"]["succeeded"] == 4
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
    assert client.wait(job)["counts"] == {
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
    eventually(lambda: client.job(job)["counts"]["succeeded"])
    pids = {child.name: child.pid for child in platform.supervisor.children}
    os.kill(pids["worker-1"] or 0, signal.SIGKILL)
    assert client.job(job)["counts"]["succeeded"] < len(lists)

    def ended() -> bool:
        platform.poll()
        return client.job(job)["state"] == "completed"

    eventually(ended)
    found = results(client, job)
    assert [line["seq"] for line in found] == list(range(len(lists)))
    assert {np.shape(line["output"]) for line in found} == {(50, 384)}
    alone = client.infer("minilm", lists[17][43])["output"]
    np.testing.assert_allclose(found[17]["output"][43], alone, **CLOSE)
