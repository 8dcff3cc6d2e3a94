"""POST /v1/embeddings, asked by the openai package as it is."""

import json
from base64 import b64decode
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from openai import OpenAI

from millrace import Client
from tests.acceptance.compat.embeddings import embeddings
from tests.acceptance.compat.embeddings.embeddings import (
    CAT_IDS,
    CLOSE,
    TEXTS,
    embedded,
)
from tests.support.documented import SPECS
from tests.support.models.embedding import LAUNCH_S
from tests.support.platforms import CHATTING

PLATFORM = CHATTING
MODELS = embeddings.MODELS


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


SPEC = SPECS / "openai-files-batches-embeddings-models.openapi.json"


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


def test_base64_holds_the_same_floats(http: httpx.Client) -> None:
    def ask(how: str) -> Any:
        body = {"model": "minilm", "input": TEXTS[1], "encoding_format": how}
        answer = http.post("/v1/embeddings", json=body)
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
    texts = ["word " * (n % 7 + 1) for n in range(2048)]
    found = embedded(openai_client.embeddings.create(model="minilm", input=texts))
    np.testing.assert_allclose(found, [found[n % 7] for n in range(2048)], **CLOSE)
    assert len({tuple(np.round(vector, 3)) for vector in found[:7]}) == 7


def test_a_list_waits_where_its_calls_would_come_too_late(openai_client: OpenAI) -> None:
    """Twenty launches are more than the target allows; one after the other they are let in."""
    texts = ["x" * n for n in range(1, 81)]
    assert 80 / 4 * LAUNCH_S > 0.4
    answer = openai_client.embeddings.create(model="slow", input=texts)
    assert embedded(answer) == [[float(n), 1.0] for n in range(1, 81)]
    assert answer.usage.total_tokens == 0  # it counts characters


def test_a_key_makes_one_request(openai_client: OpenAI, client: Client) -> None:
    def ask(text: str) -> Any:
        return openai_client.embeddings.with_raw_response.create(
            model="minilm", input=text, extra_headers={"Idempotency-Key": '"once"'}
        )

    first, again = ask("one"), ask("one")
    assert first.content == again.content
    assert "Idempotency-Replayed" not in first.headers
    assert again.headers["Idempotency-Replayed"] == "true"
    with pytest.raises(openai.UnprocessableEntityError):
        ask("another")


def test_infer_takes_token_ids_and_no_list(
    client: Client, vectors: dict[str, Any], http: httpx.Client
) -> None:
    found = client.infer("minilm", CAT_IDS)
    np.testing.assert_allclose(found["output"], vectors[TEXTS[0]], **CLOSE)
    assert found["usage"] == {"tokens": 5}
    refused = http.post("/infer", json={"model": "minilm", "input": TEXTS})
    assert refused.status_code == 422
    assert "POST /v1/embeddings" in refused.json()["detail"]
