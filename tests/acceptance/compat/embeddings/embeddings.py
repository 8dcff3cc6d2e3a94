"""The platform that the tests of embeddings share, and how they ask it."""

from openai import OpenAI
from openai.types import CreateEmbeddingResponse

from ops.supervisor.platform import Platform

MODELS = """
[[model]]
name = "slow"
version = "1"
engine = "function"
task = "embedding"
target_ms = 400
options = { function = "tests.support.models.embedding:lengths", samples = ["a text"] }
limits = { max_batch = 4, in_flight = 1 }

[[model]]
name = "texts-only"
version = "1"
engine = "minilm"
limits = { max_batch = 64, max_tokens = 512 }
"""


TEXTS = ["a black cat", "how do I parse a JSON document", "Grüße aus Köln"]


CAT_IDS = [1037, 2304, 4937]  # of the first of them


CLOSE = {"rtol": 0, "atol": 1e-5}


def sdk(platform: Platform, key: str) -> OpenAI:
    return OpenAI(base_url=f"{platform.url}/v1", api_key=key, max_retries=0)


def embedded(answer: CreateEmbeddingResponse) -> list[list[float]]:
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return [one.embedding for one in answer.data]
