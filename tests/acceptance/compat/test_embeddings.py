"""POST /v1/embeddings, asked by the openai package as it is, and lists of texts in jobs."""

import json
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

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.children import kill, until
from tests.support.clients import http_of
from tests.support.documented import SPECS
from tests.support.jobs import begun, finish, run
from tests.support.models.embedding import LAUNCH_S, LAUNCHES, RELEASED
from tests.support.models.entries import function, model
from tests.support.packages import openai_of
from tests.support.platforms import CHATTING
from tests.support.wait import eventually

PLATFORM = CHATTING
SLOW: Any = {"task": "embedding", "target_ms": 400, "samples": ["a text"]}
MODELS = function("embedding:lengths", "slow", limits={"max_batch": 4, "in_flight": 1}, **SLOW)
MODELS += model("texts-only", "minilm", limits={"max_batch": 64, "max_tokens": 512})
TEXTS = ["a black cat", "how do I parse a JSON document", "Grüße aus Köln"]
CAT_IDS = [1037, 2304, 4937]  # of the first of them
CLOSE = {"rtol": 0, "atol": 1e-5}


def embedded(answer: CreateEmbeddingResponse) -> list[list[float]]:
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return [one.embedding for one in answer.data]


@pytest.fixture(scope="module")
def millrace(platform: Platform, key: str) -> Iterator[Client]:
    with Client(platform.url, key) as made:
        yield made


@pytest.fixture(scope="module")
def vectors(millrace: Client) -> dict[str, Any]:
    """Vectors of the texts, as POST /infer returns them."""
    return {text: millrace.infer("minilm", text)["output"] for text in TEXTS}


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
    client: OpenAI, vectors: dict[str, Any], asked: Any, texts: list[str], how: Any
) -> None:
    answer = client.embeddings.create(model="minilm", input=asked, **how)
    np.testing.assert_allclose(embedded(answer), [vectors[text] for text in texts], **CLOSE)
    assert (answer.object, answer.model) == ("list", "minilm")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens


SPEC = SPECS / "openai-files-batches-embeddings-models.openapi.json"


@pytest.mark.skipif(not SPEC.exists(), reason=f"OpenAI's document is not here: {SPEC}")
def test_the_answer_is_as_openai_documents_it(client: OpenAI) -> None:
    """The schema is OpenAI's own: fields that it doesn't name aren't there."""
    schemas = json.loads(SPEC.read_text())["components"]["schemas"]
    answer = client.embeddings.with_raw_response.create(
        model="minilm", input=TEXTS, encoding_format="float"
    )
    found = json.loads(answer.content)
    assert found.keys() == schemas["CreateEmbeddingResponse"]["properties"].keys()
    for one in found["data"]:
        assert one.keys() == schemas["Embedding"]["properties"].keys()
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="minilm", input=[])
    assert caught.value.response.json()["error"].keys() == schemas["Error"]["properties"].keys()


def test_usage_counts_the_tokens_of_all_inputs(client: OpenAI, millrace: Client) -> None:
    answer = client.embeddings.create(model="minilm@1", input=TEXTS)
    alone = sum(millrace.infer("minilm", text)["usage"]["tokens"] for text in TEXTS)
    assert (answer.usage.total_tokens, answer.model) == (alone, "minilm@1")


def test_base64_holds_the_same_floats(http: httpx.Client) -> None:
    asked = {"model": "minilm", "input": TEXTS[1]}
    bodies = [asked | {"encoding_format": how} for how in ("base64", "float")]
    answers = [http.post("/v1/embeddings", json=body).json() for body in bodies]
    packed, plain = (answer["data"][0]["embedding"] for answer in answers)
    np.testing.assert_array_equal(np.frombuffer(b64decode(packed), "<f4"), np.array(plain, "<f4"))


@pytest.mark.parametrize("field", ["use_activation", "normalize"])
def test_vllms_fields_are_served_or_change_nothing(
    client: OpenAI, millrace: Client, vectors: dict[str, Any], field: str
) -> None:
    neutral: Any = {
        "add_special_tokens": True, "embed_dtype": "float32", "endianness": "native",
        "priority": 0, "truncate_prompt_tokens": None, "chat_template_kwargs": {},
    }  # fmt: skip
    raw = millrace.infer("minilm", TEXTS[0], params={"normalize": False})["output"]
    for value, expected in ((True, vectors[TEXTS[0]]), (False, raw)):
        answer = client.embeddings.create(
            model="minilm", input=TEXTS[0], extra_body={**neutral, field: value}
        )
        np.testing.assert_allclose(embedded(answer), [expected], **CLOSE)


@pytest.mark.parametrize("dimensions", [1, 7, 384])
def test_vectors_are_cut_and_normalized_again(
    client: OpenAI, vectors: dict[str, Any], dimensions: int
) -> None:
    answer = client.embeddings.create(model="minilm", input=TEXTS, dimensions=dimensions)
    cut = np.array([vectors[text][:dimensions] for text in TEXTS])
    expected = cut / np.linalg.norm(cut, axis=1, keepdims=True)
    np.testing.assert_allclose(embedded(answer), expected, **CLOSE)


def test_a_list_of_the_longest_kind_stays_in_order(client: OpenAI) -> None:
    """Some launches of many lengths: their answers come in any order."""
    texts = ["word " * (n % 7 + 1) for n in range(2048)]
    found = embedded(client.embeddings.create(model="minilm", input=texts))
    np.testing.assert_allclose(found, [found[n % 7] for n in range(2048)], **CLOSE)
    assert len({tuple(np.round(vector, 3)) for vector in found[:7]}) == 7


def test_a_list_waits_where_its_calls_would_come_too_late(client: OpenAI) -> None:
    """Twenty launches are more than the target allows; one after the other they are let in."""
    texts = ["x" * n for n in range(1, 81)]
    assert 80 / 4 * LAUNCH_S > 0.4
    answer = client.embeddings.create(model="slow", input=texts)
    assert embedded(answer) == [[float(n), 1.0] for n in range(1, 81)]
    assert answer.usage.total_tokens == 0  # it counts characters


def test_a_key_makes_one_request(client: OpenAI, millrace: Client) -> None:
    def ask(text: str) -> Any:
        return client.embeddings.with_raw_response.create(
            model="minilm", input=text, extra_headers={"Idempotency-Key": '"once"'}
        )

    first, again = ask("one"), ask("one")
    assert first.content == again.content
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    with pytest.raises(openai.UnprocessableEntityError):
        ask("another")


def test_infer_takes_token_ids_and_no_list(
    millrace: Client, vectors: dict[str, Any], http: httpx.Client
) -> None:
    found = millrace.infer("minilm", CAT_IDS)
    np.testing.assert_allclose(found["output"], vectors[TEXTS[0]], **CLOSE)
    assert found["usage"] == {"tokens": 5}
    refused = http.post("/infer", json={"model": "minilm", "input": TEXTS})
    assert refused.status_code == 422
    assert "POST /v1/embeddings" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("asked", "param", "words"),
    [
        ({"input": 7}, "input", "a list of either"),
        ({"input": None}, "input", "a list of either"),
        ({"input": {"input": "x"}}, "input", "a list of either"),
        ({"input": []}, "input", "empty"),
        ({"input": ""}, "input", "empty string"),
        ({"input": ["x", ""]}, "input", "input 1 of the list is an empty string"),
        ({"model": "texts-only", "input": [1]}, "input", "check_embedding_ctx_length=False"),
        ({"model": "texts-only", "input": ["x", [1]]}, "input", "accept_token_ids = true"),
        ({"input": ["x", 7]}, "input", "input 1 of the list"),
        ({"input": ["x", []]}, "input", "input 1 of the list"),
        ({"input": [["x"]]}, "input", "whole number|token ids"),
        ({"input": [1, "x"]}, "input", "token id 1"),
        ({"input": [1, True]}, "input", "token id 1"),
        ({"input": [30522]}, "input", "0 to 30521"),
        ({"input": [[1], [-1]]}, "input", "input 1 of the list"),
        ({"input": [1] * 8193}, "input", "8192"),
        ({"input": ["x"] * 2049}, "input", "2048"),
        ({"input": ["x", "a\0b"]}, "input[1]", "holds a NUL character, U\\+0000"),
        ({"dimensions": 0}, "dimensions", "greater"),
        ({"dimensions": 385}, "dimensions", "1 to 384"),
        ({"dimensions": "7"}, "dimensions", "integer"),
        ({"encoding_format": "hex"}, "encoding_format", "float"),
        ({"extra_body": {"timeout_ms": 0}}, "timeout_ms", "greater"),
        ({"extra_body": {"surprise": 1}}, "surprise", "isn't supported as a field"),
        ({"extra_body": {"surprise": None}}, "surprise", "isn't supported as a field"),
        ({"extra_body": {"embed_dtype": "float16"}}, "embed_dtype", 'or send "float32"'),
        ({"extra_body": {"messages": []}}, "messages", "leave it out"),
        ({"extra_body": {"use_activation": 1}}, "use_activation", "boolean"),
        (
            {"model": "slow", "extra_body": {"use_activation": False}},
            "use_activation",
            "takes no parameter",
        ),
        ({"model": "echo"}, "model", "embeddings"),
        ({"model": "slow", "input": [1]}, "input", "takes no token ids"),
        ({"model": ""}, "model", "at least 1"),
    ],
)
def test_what_is_wrong_is_a_bad_request_that_names_it(
    client: OpenAI, asked: dict[str, Any], param: str, words: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=words) as caught:
        client.embeddings.create(**{"model": "minilm", "input": "x", **asked})
    assert (caught.value.param, caught.value.type) == (param, "invalid_request_error")


def test_an_unknown_model_and_a_body_that_is_too_large_are_refused(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="model 'gone' does not exist"):
        client.embeddings.create(model="gone", input="x")
    with pytest.raises(openai.APIStatusError, match="4,194,304 bytes") as caught:
        client.embeddings.create(model="minilm", input=["x" * 4096] * 1100)
    assert caught.value.status_code == 413


def test_what_takes_too_long_ends_at_its_deadline(client: OpenAI) -> None:
    with pytest.raises(openai.InternalServerError) as caught:
        client.embeddings.create(model="slow", input=["x"] * 160, extra_body={"timeout_ms": 600})
    assert caught.value.status_code == 504
    with pytest.raises(openai.APIStatusError):
        client.embeddings.create(model="slow", input="x", extra_body={"timeout_ms": 1})


def assert_answers_again(client: OpenAI) -> None:
    """Checks that the model answers, so that all calls before have been launched or dropped."""
    patient = client.with_options(max_retries=9)
    assert embedded(patient.embeddings.create(model="slow", input="after")) == [[5.0, 1.0]]


def launched(platform: Platform, prefix: str) -> int:
    """Counts the texts of which the model has begun a launch."""
    lines = (platform.settings.home / LAUNCHES).read_text().splitlines()
    return len({line for line in lines if line.startswith(prefix)})


@pytest.fixture
def released(platform: Platform) -> Iterator[Path]:
    """File that lets go what the model holds; there at the end, else the model is never free."""
    path: Path = platform.settings.home / RELEASED
    path.unlink(missing_ok=True)
    yield path
    path.touch()


def test_where_some_fail_the_others_are_taken_back(platform: Platform, client: OpenAI) -> None:
    """They would be 88 launches: seconds in which the api learns of the first failure."""
    texts = ["broken" if n % 8 == 0 else f"spared {n}" for n in range(400)]
    with pytest.raises(openai.InternalServerError, match="it is broken"):
        client.embeddings.create(model="slow", input=texts)
    assert_answers_again(client)
    assert launched(platform, "spared") < 300  # of 350


def test_a_client_that_goes_takes_all_of_its_list_back(
    platform: Platform, client: OpenAI, released: Path
) -> None:
    texts = [f"hold {n}" for n in range(60)]

    def leaves_while_it_runs() -> bool:
        """A starved api may not have begun when its client goes."""
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.5).embeddings.create(model="slow", input=texts)
        return launched(platform, "hold") > 0

    eventually(leaves_while_it_runs)
    with http_of(platform, "admins", role="admin") as admin:  # the model holds a call meanwhile
        eventually(lambda: "\nmillrace_calls_in_flight 0.0\n" in admin.get("/metrics").text)
    released.touch()
    assert_answers_again(client)
    assert launched(platform, "hold") <= 4  # the launch that it left


@pytest.fixture
def limited(platform: Platform, request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    """A client of a tenant with these limits."""
    tenant = request.node.name.partition("[")[0][:60].replace("_", "-")
    path, data = f"/tenants/{tenant}/limits", {"data": [request.param]}
    with openai_of(platform, tenant) as made, http_of(platform, "admins", role="admin") as admin:
        assert admin.put(path, json=data).status_code == 200
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
    answer = limited.embeddings.create(model="slow", input=["x" * n for n in range(1, 13)])
    assert embedded(answer) == [[float(n), 1.0] for n in range(1, 13)]


def test_a_list_in_a_job_comes_back_as_one_result(
    platform: Platform, millrace: Client, vectors: dict[str, Any]
) -> None:
    items = [TEXTS[0], TEXTS, {"input": [CAT_IDS, TEXTS[1]], "params": {"dimensions": 5}}, CAT_IDS]
    text, list_, cut, ids = run(platform, millrace, "minilm", items)
    for alone in (text, ids):
        np.testing.assert_allclose(alone["output"], vectors[TEXTS[0]], **CLOSE)
    np.testing.assert_allclose(list_["output"], [vectors[text] for text in TEXTS], **CLOSE)
    assert np.shape(cut["output"]) == (2, 5)
    tokens = [millrace.infer("minilm", text)["usage"]["tokens"] for text in TEXTS]
    assert list_["usage"] == {"tokens": sum(tokens)}


def test_a_list_that_holds_what_fails_fails_as_one(platform: Platform, millrace: Client) -> None:
    items = [["x", "broken", "y"], ["x", 7], ["x"] * 2049, ["fine"]]
    *failed, fine = run(platform, millrace, "slow", items, on_invalid="fail_item")
    assert failed[0]["error"]["message"] == "input 1 of the list: it is broken"
    codes = [one["error"]["code"] for one in failed]
    assert codes == ["engine_error", "invalid_input", "invalid_input"]
    assert fine["output"] == [[4.0, 1.0]]


def test_a_killed_worker_loses_and_doubles_no_list(platform: Platform, millrace: Client) -> None:
    lists = [[f"text {n} of list {m}" for n in range(50)] for m in range(24)]

    def killed_in_the_middle() -> str:
        """The job; "" where it has ended before the kill."""
        job = millrace.jobs.submit("minilm", lists).id
        eventually(lambda: begun(millrace, job))
        kill(platform)
        return job if millrace.jobs.get(job)["counts"]["succeeded"] < len(lists) else ""

    job = until(platform, killed_in_the_middle)
    found = finish(platform, millrace, job)
    assert [line["seq"] for line in found] == list(range(len(lists)))
    assert {np.shape(line["output"]) for line in found} == {(50, 384)}
    alone = millrace.infer("minilm", lists[17][43])["output"]
    np.testing.assert_allclose(found[17]["output"][43], alone, **CLOSE)
