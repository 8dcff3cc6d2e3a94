"""Chats of the benchmarks: problems of arithmetic, and models files for them."""

from typing import Any

from jobs.models.model import Model
from ops.bench.data import texts
from ops.bench.harness.models_files import models_file, sample

LIGHT = "echo_chat"  #: answers at a fixed pace, without a network
REAL = "smollm2"


def questions(count: int, **fields: Any) -> list[dict[str, Any]]:
    """Returns bodies of chat completions, one a question; fields: added to each."""
    asked = texts.questions()[:count]
    return [{"messages": [{"role": "user", "content": text}], **fields} for text in asked]


def paced(words: int, **fields: Any) -> dict[str, Any]:
    """Returns a body that the paced model answers with so many tokens."""
    text = " ".join(f"word{n}" for n in range(words))
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, **fields}


def long_contexts(count: int, words: int, **fields: Any) -> list[dict[str, Any]]:
    """Returns bodies whose prompts have about so many words."""
    words_of = [question.split() for question in texts.questions()]
    bodies = []
    for n in range(count):
        text = " ".join(word for row in words_of[n::count] for word in row).split()[:words]
        bodies.append({"messages": [{"role": "user", "content": " ".join(text)}], **fields})
    return bodies


def text_of(output: dict[str, Any]) -> str:
    """Returns the text of a `chat.completion`."""
    return str(output["choices"][0]["message"]["content"])


def real_model() -> str:
    """Returns the models file of the real model."""
    return models_file(sample(REAL, target_ttft_ms=600_000))  # refuses none


def light_model(step_ms: float, sequences: int = 64, **changes: Any) -> str:
    """Returns the models file of a generator whose steps take so long. changes: of the entry."""
    options = {"step_ms": step_ms, "sequences": sequences, "blocks": 65_536}
    return models_file(Model(LIGHT, "1", LIGHT, options=options, **changes))
