"""The engines that ship with Millrace, and what their models have in common."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from jobs.models.engines import custom_engines, upstream_options
from jobs.models.engines.engine_spec import TOKEN_BUCKETS, EngineSpec, Param
from jobs.models.inputs import tensors
from jobs.models.inputs.input_size import (
    MIN_TOKENS,
    POSITIONS,
    WORDS,
    characters,
    guessed_tokens,
    minilm_tokens,
    written_characters,
)


def _whole(what: str, least: int, most: int) -> Param:
    return Param(int, f"a whole number of {what}, {least} to {most}", range(least, most + 1))


def _embedding(most_dimensions: int) -> EngineSpec:
    """Of what cuts texts by MiniLM's tokenizer, whatever comes after."""
    params = {
        "normalize": Param(bool, "true or false"),
        "truncate": _whole("tokens", MIN_TOKENS, POSITIONS),
        "dimensions": _whole("dimensions", 1, most_dimensions),
    }
    return EngineSpec(
        True, "tokens", params, minilm_tokens, TOKEN_BUCKETS, "embedding", vocabulary=WORDS
    )


_CHAT_UPSTREAM = EngineSpec(
    False, "tokens", {}, guessed_tokens, task="chat", limits=upstream_options.limits_of
)


_EMBEDDING_UPSTREAM = EngineSpec(
    False,
    "tokens",
    {"dimensions": Param(int, "a whole number, 1 or more", range(1, 1_000_000))},
    guessed_tokens,
    task="embedding",
    limits=upstream_options.limits_of,
    vocabulary=1 << 31,  # its own, which is not known here
)


_TENSORS = EngineSpec(False, "rows", {}, tensors.rows, task="tensors")


_OPENAI = {"chat": _CHAT_UPSTREAM, "embedding": _EMBEDDING_UPSTREAM}


ENGINES: Mapping[str, EngineSpec] = {
    "minilm": _embedding(384),
    "encoder": _embedding(8192),  # an engine refuses more than it has
    "function": EngineSpec(True, "characters", {}, characters, task="text"),
    "echo": EngineSpec(False, "characters", {}, characters),
    "http": EngineSpec(
        False, "characters", {}, written_characters, limits=upstream_options.limits_of
    ),
    "openai": replace(_CHAT_UPSTREAM, by_task=_OPENAI),
    "python": custom_engines.PYTHON,
    "torch": custom_engines.TORCH,
    "huggingface": custom_engines.HUGGINGFACE,
    "tensors": replace(_TENSORS, by_task={"tensors": _TENSORS}),
}


@cache
def spec_of(engine: str, task: str) -> EngineSpec:
    """Kept: each item that comes in or is prepared asks for it several times."""
    return ENGINES[engine].doing(task)
