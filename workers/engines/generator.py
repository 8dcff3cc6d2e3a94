"""Protocol of generators: engines that produce tokens step by step, for the generation host.

The host decides before each step which sequences are in: it adds, aborts and calls `step`, from one
thread. A preempted sequence is aborted, and added again later with the tokens that it had emitted;
it goes on exactly where it was. A generator that died is restarted, and its sequences added again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from jobs.models.adapters import Adapter
from jobs.models.inputs.generation import GenerationRequest, Sampling, TokenUsage, parse
from workers.engines.protocol import InvalidInput

FinishReason = Literal["stop", "length"]


class GeneratorDied(Exception):
    """Raised by `step` where the generator's process ended, or doesn't respond: `restart` it.

    outside: it was killed by a signal that it didn't raise, so no sequence is accused.
    """

    def __init__(self, why: str, *, outside: bool = False) -> None:
        super().__init__(why)
        self.outside = outside


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bounds of a generator, constant once it is loaded."""

    blocks: int  #: KV blocks; 0: not known (an upstream server)
    block_tokens: int  #: tokens of a block
    sequences: int  #: most sequences of a step
    context_tokens: int  #: most tokens of a sequence, prompt and output
    resumes: bool = True  #: False: a sequence that was aborted can't go on later
    takes_over: bool = True  #: False: nor can a call that began on another worker


@dataclass(frozen=True, slots=True)
class Prompt:
    """Request that was checked against the model and tokenized."""

    tokens: Sequence[int]  #: ids; empty where the generator doesn't know them (an upstream server)
    size: int  #: tokens of the prompt, estimated where `tokens` is empty
    request: GenerationRequest
    text: str = ""  #: of the prompt, for `echo`
    grammar: str = ""  #: that the output follows, as the generator's library has it; "": none
    truncated: int = 0  #: tokens that `truncate_prompt_tokens` has cut away
    call_format: str = ""  #: of tool calls, where the generator rewrites them; "": as they are


@dataclass(frozen=True, slots=True)
class Tokenized:
    """Tokens of a text or a conversation."""

    tokens: Sequence[int]  #: ids
    texts: Sequence[str]  #: names of the tokens in the vocabulary
    context_tokens: int  #: most tokens of a sequence; 0: not known


def prompts(
    inputs: Sequence[Any], prompt_of: Callable[[Any, GenerationRequest], Prompt]
) -> list[Prompt | InvalidInput]:
    """Makes a prompt of each input; a ValueError refuses it alone."""
    return [_prompt(value, prompt_of) for value in inputs]


def _prompt(
    value: Any, prompt_of: Callable[[Any, GenerationRequest], Prompt]
) -> Prompt | InvalidInput:
    try:
        return prompt_of(value, parse(value))
    except ValueError as error:
        return InvalidInput(str(error))


def unknown_token(place: int, token: int, vocabulary: int) -> ValueError:
    """Returns the error of an id among those of a text that is to be made."""
    return ValueError(
        f"tokens[{place}] is {token}, which is no token of the model: its ids are 0 to "
        f"{vocabulary - 1}"
    )


def prompt_too_long(
    length: int | str, request: GenerationRequest, context_tokens: int
) -> ValueError:
    """Returns the error of a prompt that leaves no room for output. Clients know it by its words,
    and shorten the conversation or go to another model: Anthropic's stand first, then vLLM's.

    length: tokens of the prompt, or in words where they weren't counted.
    """
    output = request.sampling.max_tokens or 1
    if not isinstance(length, str):
        parts = f"({length} in the messages, {output} in the completion)"
        length = f"{length + output} tokens {parts}"
    return ValueError(
        f"prompt is too long: This model's maximum context length is {context_tokens} tokens. "
        f"However, you requested {length}. Please reduce the length of the messages or completion."
    )


@dataclass(frozen=True, slots=True)
class NewSequence:
    """Sequence to add."""

    id: str  #: unique among all that were ever added
    prompt: Prompt
    sampling: Sampling  #: with max_tokens and seed set
    emitted: tuple[int, ...] = ()  #: tokens that it had before it was preempted
    first: bool = False  #: a call: its prompt is computed before those of items
    adapter: Adapter | None = None  #: loaded before, where the generator loads adapters
    salt: str = ""  #: sequences share cached blocks only with those of the same salt
    #: final text of `emitted`, where the generator doesn't know the ids of tokens or rewrites calls
    text: str = ""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """Log probability of one token, of the model's own distribution."""

    token: int
    text: str  #: that it adds to the text; of a likely token its own
    logprob: float | None  #: None: of the first token of a prompt
    top: tuple["TokenLogprob", ...] = ()  #: likeliest tokens
    raw: bytes | None = None  #: its own bytes; None: those of the text
    rank: int = 0  #: its place among all tokens, from 1; 0: not known

    @property
    def own_bytes(self) -> bytes:
        """Bytes that the vocabulary has for it: of a part of a character too."""
        return self.text.encode() if self.raw is None else self.raw


@dataclass(frozen=True, slots=True)
class Emitted:
    """Tokens of one sequence that a step produced; the last of a sequence has a finish reason."""

    id: str
    tokens: Sequence[int] = ()
    text: str = ""  #: final text: what may still become a stop string is held back
    logprobs: Sequence[TokenLogprob] = ()  #: one a token, where they were requested
    finish: FinishReason | None = None
    #: stop string that ended it, which isn't part of the text; of a server, or its token
    stopped_by: str | int | None = None
    error: Exception | None = None  #: ends the sequence alone
    cached: int = 0  #: tokens of the prompt found in the cache, with the first tokens only
    #: one a token of the prompt, with the first tokens only, where they were requested
    prompt_logprobs: Sequence[TokenLogprob] = ()
    usage: TokenUsage | None = None  #: counted by a server, with the last tokens of a sequence


@dataclass(frozen=True, slots=True)
class AdapterLoaded:
    """End of one load of an adapter."""

    slot: int
    load_s: float = 0.0  #: time that it took
    error: Exception | None = None  #: why the adapter can't be used


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one step."""

    emitted: Sequence[Emitted] = ()
    duration_s: float = 0.0  #: time on the device
    prefill_tokens: int = 0  #: tokens of prompts that were computed
    sequences: int = 0  #: sequences that it had
    kv_tokens: int = 0  #: tokens read from the KV cache
    free_blocks: int = 0  #: after it; cached blocks that nobody uses count as free
    adapters: Sequence[AdapterLoaded] = ()  #: whose loads have ended


@runtime_checkable
class Generator(Protocol):
    """Generates text for one model in one worker."""

    @property
    def capacity(self) -> Capacity:
        """Bounds, as loaded."""
        ...

    def prepare(self, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
        """Returns one Prompt or InvalidInput per input, in order; for any thread.

        Refuses all that could harm the engine: empty prompts, unknown token ids, prompts that
        leave no token of the context, parameters out of range.
        """
        ...

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        """Returns the tokens of a prompt, also of one that has too many for the model, unless
        its text alone tells; for any thread, and may wait for a server. Raises ValueError, and what
        engines raise."""
        ...

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens, special ones included, as `tokenize` does otherwise."""
        ...

    def add(self, sequence: NewSequence) -> None:
        """Adds a sequence; it is prefilled in the next steps."""
        ...

    def abort(self, id: str) -> None:
        """Removes a sequence, in any state, before the next step; its blocks are free then. An
        unknown id changes nothing."""
        ...

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        """Runs one step: at most so many tokens of prompts, and one token of each other sequence.

        prefills: ids of sequences whose prompts are computed in this order, after those of others.
        A server that schedules for itself goes by neither.

        Returns an empty Step where there is nothing to do. Raises GeneratorDied, then too.
        """
        ...

    def restart(self) -> None:
        """Starts again after GeneratorDied, without any sequence. Raises as loading does, and
        GeneratorDied where its process ended."""
        ...

    def memory_mb(self) -> float:
        """Returns the device memory that weights and KV cache hold, MiB; 0 if none."""
        ...

    def close(self) -> None:
        """Frees everything; the last method."""
        ...


@runtime_checkable
class Adapting(Protocol):
    """Generator that loads adapters into slots, while its steps go on."""

    adapter_slots: int  #: adapters at a time

    def load_adapter(self, slot: int, adapter: Adapter) -> None:
        """Loads an adapter in place of what a slot has, which no sequence uses any more. A later
        step tells of the end, also where no sequence is there."""
        ...
