"""Engines that ship with Millrace, and the properties of their models."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from jobs.models.engines import custom_engines
from jobs.models.engines.echo_chat_options import CONTEXT_TOKENS, EchoChatOptions
from jobs.models.engines.engine_spec import (
    TOKEN_BUCKETS,
    TRUE_OR_FALSE,
    EngineOptions,
    EngineSpec,
    Param,
)
from jobs.models.engines.generating_engines import TRANSFORMERS
from jobs.models.engines.image_options import IMAGE_CLASSIFIER
from jobs.models.engines.server_options import ServerOptions
from jobs.models.engines.upstream_options import HttpOptions, OpenAIOptions
from jobs.models.inputs import generation, signature
from jobs.models.inputs.input_size import (
    MAX_TOKENS,
    MIN_TOKENS,
    POSITIONS,
    WORDS,
    characters,
    guessed_tokens,
    minilm_tokens,
    written_characters,
)
from jobs.models.inputs.signature import Spec


def _distinct(specs: list[Spec]) -> list[Spec]:
    names = [spec.name for spec in specs]
    twice = [repr(name) for name in dict.fromkeys(names) if names.count(name) > 1]
    if twice:
        raise ValueError(f"{' and '.join(twice)} is declared twice")
    return specs


_Specs = Annotated[
    list[Spec],
    AfterValidator(_distinct),
    Field(min_length=1, description="a list of { name, datatype, shape }"),
]


class TensorOptions(EngineOptions):
    """Options of the engine `tensors` that decide about inputs; it checks the others itself."""

    model_config = ConfigDict(extra="allow")

    inputs: _Specs
    outputs: _Specs


def _embedding(most_dimensions: int) -> EngineSpec:
    """Returns the spec of embedding models that cut texts by MiniLM's tokenizer."""
    params = {
        "normalize": TRUE_OR_FALSE,
        "truncate": Param.whole("tokens", MIN_TOKENS, POSITIONS),
        "dimensions": Param.whole("dimensions", 1, most_dimensions),
    }
    return EngineSpec(
        True,
        "tokens",
        params,
        minilm_tokens,
        TOKEN_BUCKETS,
        "embedding",
        adapters="files",
        vocabulary=WORDS,
        measured=True,
        context=lambda options: options.get("max_tokens", MAX_TOKENS),
    )


def _generator(options: type[EngineOptions], context_tokens: int = 0) -> EngineSpec:
    """Returns the spec of models that generate text. context_tokens: of those whose options don't
    say it."""
    return EngineSpec(
        False,
        "tokens",
        {},
        guessed_tokens,
        task="chat",
        input_problem=generation.refuse,
        options=options,
        generates=True,
        adapters="" if options is EchoChatOptions else "names",
        context=lambda options: options.get("context_tokens", context_tokens),
    )


_CHAT_UPSTREAM = EngineSpec(
    False,
    "tokens",
    {},
    guessed_tokens,
    task="chat",
    options=OpenAIOptions,
    adapters="names",
    streaming=_generator(OpenAIOptions),
)
_EMBEDDING_UPSTREAM = EngineSpec(
    False,
    "tokens",
    {"dimensions": Param.whole("dimensions", 1, 1_000_000)},
    guessed_tokens,
    task="embedding",
    options=OpenAIOptions,
    vocabulary=1 << 31,  # its own, which is not known here
)


_TENSORS = EngineSpec(False, "rows", {}, signature.rows, task="tensors", options=TensorOptions)

ENGINES: Mapping[str, EngineSpec] = {
    "minilm": replace(_embedding(384), pooled=True),
    "encoder": _embedding(8192),  # an engine refuses more than it has
    "function": EngineSpec(True, "characters", {}, characters, task="text"),
    "echo": EngineSpec(False, "characters", {}, characters),
    "echo_chat": _generator(EchoChatOptions, CONTEXT_TOKENS),
    "http": EngineSpec(False, "characters", {}, written_characters, options=HttpOptions),
    "openai": replace(
        _CHAT_UPSTREAM, by_task={"chat": _CHAT_UPSTREAM, "embedding": _EMBEDDING_UPSTREAM}
    ),
    "python": custom_engines.PYTHON,
    "torch": custom_engines.TORCH,
    "huggingface": custom_engines.HUGGINGFACE,
    "image_classifier": IMAGE_CLASSIFIER,
    "transformers": TRANSFORMERS,
    "server": _generator(ServerOptions),
    "tensors": replace(_TENSORS, by_task={"tensors": _TENSORS}),
}


@cache  # each item that comes in or is prepared asks several times
def spec_of(engine: str, task: str) -> EngineSpec:
    """Returns the spec of models of this engine whose entry says this task; "": none."""
    return ENGINES[engine].for_task(task)
