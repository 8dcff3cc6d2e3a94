"""The platform that the tests of embeddings share, and how they ask it."""

from openai.types import CreateEmbeddingResponse

from tests.support.models.entries import function, model

MODELS = function(
    "embedding:lengths",
    name="slow",
    task="embedding",
    target_ms=400,
    limits={"max_batch": 4, "in_flight": 1},
    samples=["a text"],
) + model("texts-only", "minilm", limits={"max_batch": 64, "max_tokens": 512})


TEXTS = ["a black cat", "how do I parse a JSON document", "Grüße aus Köln"]
CAT_IDS = [1037, 2304, 4937]  # of the first of them
CLOSE = {"rtol": 0, "atol": 1e-5}


def embedded(answer: CreateEmbeddingResponse) -> list[list[float]]:
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return [one.embedding for one in answer.data]
