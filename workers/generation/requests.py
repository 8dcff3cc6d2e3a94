"""Requests that wait or run in a generation host, and their sequences."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from jobs.calls.messages import ChoiceDelta
from jobs.models.adapters import Adapter
from jobs.models.inputs.generation import GenerationRequest, Sampling, TokenUsage
from jobs.telemetry.token_times import TokenTimes
from workers.engines.generator import Emitted, FinishReason, NewSequence, Prompt, TokenLogprob
from workers.scheduler.entries import Place

Prompts: TypeAlias = Sequence[Prompt]
"""Prompts of one input, at least one."""


@dataclass(frozen=True, slots=True)
class Emission:
    """Output of one sequence so far, from which another worker, or a restarted one, goes on."""

    index: int  #: of the choice
    tokens: Sequence[int] = ()
    text: str = ""  #: final text, without what is held back
    logprobs: Sequence[TokenLogprob] = ()  #: one a token, where they were requested
    finish: FinishReason | None = None  #: of a sequence that had ended
    stopped_by: str | int | None = None  #: stop string, or a server's token, that ended it
    cached: int = 0  #: tokens of the prompt that were in the cache before its first token
    opening: ChoiceDelta | None = None  #: what comes before the output


@dataclass(frozen=True, slots=True)
class Stored:
    """Part of a sequence that its checkpoint holds."""

    tokens: int = 0  #: number of its tokens
    texts: int = 0  #: number of the pieces of its text
    ended: bool = False  #: with its finish reason


@dataclass(slots=True, eq=False)
class Request:
    """Call or item: n sequences of each of its prompts."""

    id: str
    owner: Any  #: call, or slice of an item
    is_call: bool
    prompts: Prompts
    arrived_s: float  #: monotonic
    deadline_s: float  #: of a call, monotonic; inf for an item
    tenant: str
    weight: float = 1.0  #: the tenant's fair share weight
    take: int = 0  #: number of the take that gave this call to the host
    name: str = ""  #: the same on any worker: seeds follow from it; "": the id
    seq: int = 0  #: of an item in its slice
    part: int = 0  #: index in the list of inputs that an item is part of
    place: Place = ()  #: among the tenant's items
    streams: bool = False  #: True if deltas are sent
    adapter: Adapter | None = None  #: of the model
    sequences: list["Sequenced"] = field(default_factory=list)
    admitted_s: float = 0.0  #: when its first sequence was admitted, monotonic
    first_s: float = 0.0  #: when its first token came, monotonic
    predicted_s: float = 0.0  #: time from arrival to its first token, as predicted on admission
    deltas: int = 0  #: of a call, logged so far
    device_s: float = 0.0  #: its share of the steps that it was in
    stored_device_s: float = 0.0  #: part of this that is in the checkpoint of an item
    preemptions: int = 0
    token_times: TokenTimes = field(default_factory=TokenTimes)

    @property
    def asked(self) -> GenerationRequest:
        """Fields that its prompts have in common."""
        return self.prompts[0].request

    @property
    def unfinished(self) -> Sequence["Sequenced"]:
        """Its sequences without a finish reason."""
        return [sequence for sequence in self.sequences if not sequence.finish]

    @property
    def ended(self) -> bool:
        """True once all its sequences have a finish reason."""
        return not self.unfinished

    @property
    def seed(self) -> int:
        """Seed of its first sequence, where the client gave none: from 0, below 2**62."""
        digest = hashlib.blake2b((self.name or self.id).encode(), digest_size=8).digest()
        return int.from_bytes(digest) >> 2

    @property
    def usage(self) -> TokenUsage:
        """Tokens to bill: each once, whatever was computed again."""
        if not self.admitted_s:
            return TokenUsage()
        counted = [one.counted for one in self.sequences if one.counted]
        output = sum(
            one.counted.output if one.counted else len(one.emitted) for one in self.sequences
        )
        if counted:
            return TokenUsage(counted[0].input, counted[0].cached, output)
        first = self.sequences[:: self.asked.n]
        begun = [one for one in first if one.runs or one.opening or one.emitted]
        cached = sum(min(one.cached, one.prompt.size) for one in begun)
        truncated = 0
        for prompt in self.prompts:
            truncated += prompt.truncated
        return TokenUsage(sum(one.prompt.size for one in begun), cached, output, truncated)


@dataclass(slots=True, eq=False)
class Sequenced:
    """One sequence of a request."""

    request: Request
    index: int  #: of the choice
    prompt: Prompt
    sampling: Sampling  #: with max_tokens and seed set
    emitted: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)  #: pieces of its final text
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None
    stopped_by: str | int | None = None  #: stop string, or a server's token, that ended it
    cached: int = 0  #: tokens of the prompt that were in the cache before its first token
    opening: ChoiceDelta | None = None  #: the echoed prompt, and what is reported of its tokens
    counted: TokenUsage | None = None  #: by the server that generated it
    runs: int = 0  #: times that it was added to the generator
    suspicion: int = 0  #: by deaths of the generator with it since its latest token
    to_prefill: int = 0  #: tokens to compute before its next token, about
    latest_s: float = 0.0  #: when its latest tokens came, monotonic
    stored: Stored = Stored()  #: part of it that is in the checkpoint of an item

    @property
    def id(self) -> str:
        """Id in the generator: another one each time that it is added."""
        return f"{self.request.id}/{self.index}/{self.request.take}/{self.runs}"

    @property
    def tokens(self) -> int:
        """Tokens so far, prompt and output."""
        return self.prompt.size + len(self.emitted)

    def stop_reason(self, end: "Emitted | Sequenced") -> str | int | None:
        """Returns the stop string, or the one of `stop_token_ids`, that ended it. end: its last
        tokens, or itself once it has ended."""
        if end.stopped_by is not None or end.finish != "stop" or not self.emitted:
            return end.stopped_by
        last = self.emitted[-1]
        return last if last in self.sampling.stop_token_ids else None

    @property
    def prompt_number(self) -> int:
        """Place of its prompt among those of its request."""
        return self.index // self.request.asked.n

    @property
    def leads(self) -> bool:
        """True for the first choice of its prompt."""
        return self.index % self.request.asked.n == 0

    @property
    def most_left(self) -> int:
        """Most tokens that may still come."""
        return max(1, (self.sampling.max_tokens or 1) - len(self.emitted))

    def resume(self, before: Emission) -> None:
        """Takes over what it had emitted on another worker."""
        self.emitted, self.text = list(before.tokens), [before.text]
        self.logprobs, self.cached = list(before.logprobs), before.cached
        self.finish, self.stopped_by = before.finish, before.stopped_by
        self.opening = before.opening

    def end(self, emitted: Emitted) -> None:
        """Takes how it ended from its last tokens."""
        self.finish, self.stopped_by = emitted.finish, emitted.stopped_by
        self.counted = emitted.usage

    def as_new(self) -> NewSequence:
        """Returns it as the generator takes it, with what it had emitted."""
        emitted, its = tuple(self.emitted), self.request
        told = not self.prompt.tokens or self.prompt.call_format
        text = "".join(self.text) if told else ""
        return NewSequence(
            self.id,
            self.prompt,
            self.sampling,
            emitted,
            first=its.is_call,
            adapter=its.adapter,
            salt=cache_salt(its.tenant, its.adapter, self.prompt.request.cache_salt),
            text=text,
        )


def cache_salt(tenant: str, adapter: Adapter | None, own: str = "") -> str:
    """Returns what requests must have in common to share cached prefixes: the tenant and, where
    they have one, the adapter with its version, and the salt of their own."""
    identity = adapter.identity if adapter else ""
    if own:
        return f"{tenant}\n{identity}\n{own}"  # no name has a line break
    return f"{tenant}\n{identity}" if adapter else tenant


def sequences_of(request: Request, context_tokens: int) -> Sequence[Sequenced]:
    """Returns the sequences of a request: choice i of a prompt has the seed plus i, and at most the
    tokens that the context leaves."""
    sampling, sequences = request.asked.sampling, list[Sequenced]()
    for prompt in request.prompts:
        room = max(1, context_tokens - prompt.size)
        most = room if sampling.max_tokens is None else min(sampling.max_tokens, room)
        first = request.seed + len(sequences) if sampling.seed is None else sampling.seed
        for n in range(request.asked.n):
            own = replace(sampling, max_tokens=most, seed=first + n)
            sequences.append(Sequenced(request, len(sequences), prompt, own))
    return sequences
