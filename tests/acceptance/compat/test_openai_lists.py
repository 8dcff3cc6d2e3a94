"""Lines with several texts and with `dimensions`: what an embedding model is asked
in lists comes back as so many embeddings."""

import base64
from typing import Any

import numpy as np
import openai
import pytest
from openai.types import CreateEmbeddingResponse

from tests.support.packages import openai_batch
from tests.support.platforms import CLOSED

PLATFORM = CLOSED


@pytest.fixture(scope="module")
def client(openai_client: openai.OpenAI) -> openai.OpenAI:
    return openai_client


def answers(client: openai.OpenAI, *bodies: dict[str, Any]) -> list[CreateEmbeddingResponse]:
    return [CreateEmbeddingResponse.model_validate(body) for body in raw_answers(client, *bodies)]


def raw_answers(client: openai.OpenAI, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the answers to requests for embeddings, sent as a batch."""
    output, _ = openai_batch(
        client, "/v1/embeddings", *({"model": "minilm", **body} for body in bodies)
    )
    return [line["response"]["body"] for line in output]


def test_several_texts_of_a_line_are_several_embeddings(client: openai.OpenAI) -> None:
    many, *each = answers(client, {"input": ["one", "two"]}, {"input": "one"}, {"input": "two"})
    assert [one.index for one in many.data] == [0, 1]
    for found, alone in zip(many.data, each, strict=True):
        assert found.embedding == pytest.approx(alone.data[0].embedding, abs=1e-5)
    assert many.usage.total_tokens == sum(alone.usage.total_tokens for alone in each)


def test_token_ids_of_another_tokenizer_fail_the_batch(client: openai.OpenAI) -> None:
    with pytest.raises(AssertionError, match="accept_token_ids = true"):
        answers(client, {"input": [101, 2028, 102]})


def test_dimensions_cut_vectors(client: openai.OpenAI) -> None:
    [short] = answers(client, {"input": "one", "dimensions": 64})
    assert len(short.data[0].embedding) == 64
    assert sum(x * x for x in short.data[0].embedding) == pytest.approx(1.0, abs=1e-5)


def test_base64_of_several_is_a_string_each(client: openai.OpenAI) -> None:
    asked = {"input": ["one", "two"]}
    plain, packed = raw_answers(client, asked, asked | {"encoding_format": "base64"})
    for one, other in zip(plain["data"], packed["data"], strict=True):
        found = np.frombuffer(base64.b64decode(other["embedding"]), "<f4")
        assert found.tolist() == pytest.approx(one["embedding"], abs=1e-5)
