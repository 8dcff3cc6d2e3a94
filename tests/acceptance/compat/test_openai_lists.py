"""Lines with several texts and with `dimensions`: what an embedding model is asked
in lists comes back as so many embeddings."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import openai
import pytest
from openai.types import CreateEmbeddingResponse

from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at
from tests.support.platforms import CLOSED
from tests.support.wait import eventually

PLATFORM = CLOSED


@pytest.fixture(scope="module")
def client(platform: Platform) -> Iterator[openai.OpenAI]:
    key, _ = make_key_at(platform.settings.database_url, "lists")
    with openai.OpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0) as made:
        yield made


def answers(client: openai.OpenAI, *bodies: dict[str, Any]) -> list[CreateEmbeddingResponse]:
    return [CreateEmbeddingResponse.model_validate(body) for body in raw_answers(client, *bodies)]


def raw_answers(client: openai.OpenAI, *bodies: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the answers to requests for embeddings, sent as a batch."""
    lines = [
        {
            "custom_id": str(n),
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {"model": "minilm", **body},
        }
        for n, body in enumerate(bodies)
    ]
    raw = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    file = client.files.create(file=("a.jsonl", raw), purpose="batch")
    made = client.batches.create(
        input_file_id=file.id, endpoint="/v1/embeddings", completion_window="1h"
    )

    def output() -> str | None:
        batch = client.batches.retrieve(made.id)
        assert batch.status not in ("failed", "expired", "cancelled"), batch.errors
        return batch.output_file_id

    found = client.files.content(str(eventually(output))).content.splitlines()
    return [json.loads(line)["response"]["body"] for line in found]


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
