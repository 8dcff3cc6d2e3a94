"""Inputs of models that generate text: a prompt or a conversation, and how tokens are sampled.

An input is a body of OpenAI's `/v1/chat/completions` (`messages`) or `/v1/completions` (`prompt`),
without `model` and `stream`; an output is the `chat.completion` or `text_completion` object.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Sampling:
    """Parameters by which the tokens of one sequence are chosen; the defaults are OpenAI's."""

    max_tokens: int | None = None  #: most tokens to generate; None: as many as the context has left
    min_tokens: int = 0  #: tokens before the end token or a stop string may end the sequence
    temperature: float = 1.0  #: 0: the likeliest token each time
    top_p: float = 1.0  #: least sum of probabilities of the tokens to choose from
    top_k: int = 0  #: most tokens to choose from; 0: no bound
    min_p: float = 0.0  #: least probability, as a share of the likeliest token's
    seed: int | None = None  #: the same seed gives the same text; None: the host chooses one
    presence_penalty: float = 0.0  #: subtracted from logits of tokens that were generated
    frequency_penalty: float = 0.0  #: the same, times how often each was
    repetition_penalty: float = 1.0  #: divides positive logits of tokens of prompt and output
    logit_bias: Mapping[int, float] = field(default_factory=dict)  #: by token id, added to logits
    stop: tuple[str, ...] = ()  #: strings that end the sequence; not part of the text
    logprobs: int | None = None  #: likeliest tokens reported beside each chosen one; None: nothing


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One request: n sequences of one prompt."""

    messages: Sequence[Mapping[str, Any]] | None = None  #: conversation; None: `prompt` is given
    prompt: str | Sequence[int] | None = None  #: text, or token ids
    tools: Sequence[Mapping[str, Any]] = ()  #: for the model's chat template
    tool_choice: Any = None
    n: int = 1  #: sequences
    echo: bool = False  #: the prompt comes before the text; prompts only
    sampling: Sampling = field(default_factory=Sampling)


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one request, each counted once, whatever was computed again."""

    input: int = 0  #: tokens of the prompt, cached ones included
    cached: int = 0  #: of those, tokens whose keys and values were in the cache
    output: int = 0  #: generated tokens of all sequences
