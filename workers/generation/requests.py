"""Requests that wait or run in a generation host, and their sequences."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.models.inputs.generation import Sampling, TokenUsage
from workers.engines.generator import Emitted, FinishReason, NewSequence, Prompt, TokenLogprob
from workers.generation.monitoring.token_times import TokenTimes
from workers.scheduler.entries import Place


@dataclass(slots=True, eq=False)
class Request:
    """Call or item: n sequences of one prompt."""

    id: str
    owner: Any  #: call, or slice of an item
    is_call: bool
    prompt: Prompt
    arrived_s: float  #: monotonic
    deadline_s: float  #: of a call, monotonic; inf for an item
    tenant: str
    weight: float = 1.0  #: the tenant's fair share weight
    seq: int = 0  #: of an item in its slice
    part: int = 0  #: index in the list of inputs that an item is part of
    place: Place = ()  #: among the tenant's items
    streams: bool = False  #: True if deltas are sent
    sequences: list["Sequenced"] = field(default_factory=list)
    admitted_s: float = 0.0  #: when its first sequence was admitted, monotonic
    first_s: float = 0.0  #: when its first token came, monotonic
    predicted_s: float = 0.0  #: time from arrival to its first token, as predicted on admission
    cached: int = 0  #: tokens of the prompt that were in the cache
    deltas: int = 0  #: sent so far
    device_s: float = 0.0  #: its share of the steps that it was in
    preemptions: int = 0
    token_times: TokenTimes = field(default_factory=TokenTimes)

    @property
    def ended(self) -> bool:
        """True once all its sequences have a finish reason."""
        return all(sequence.finish for sequence in self.sequences)

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
        return TokenUsage(self.prompt.size, min(self.cached, self.prompt.size), output)


@dataclass(slots=True, eq=False)
class Sequenced:
    """One sequence of a request."""

    request: Request
    index: int  #: of the choice
    sampling: Sampling  #: with max_tokens and seed set
    emitted: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)  #: pieces of its final text
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: FinishReason | None = None
    stopped_by: str | None = None  #: stop string that ended it
    counted: TokenUsage | None = None  #: by the server that generated it
    runs: int = 0  #: times that it was added to the generator
    to_prefill: int = 0  #: tokens to compute before its next token, about
    latest_s: float = 0.0  #: when its latest tokens came, monotonic

    @property
    def id(self) -> str:
        """Id in the generator: another one each time that it is added."""
        return f"{self.request.id}/{self.index}/{self.runs}"

    @property
    def tokens(self) -> int:
        """Tokens so far, prompt and output."""
        return self.request.prompt.size + len(self.emitted)

    @property
    def most_left(self) -> int:
        """Most tokens that may still come."""
        return max(1, (self.sampling.max_tokens or 1) - len(self.emitted))

    def end(self, emitted: Emitted) -> None:
        """Takes how it ended from its last tokens."""
        self.finish, self.stopped_by = emitted.finish, emitted.stopped_by
        self.counted = emitted.usage

    def as_new(self) -> NewSequence:
        """Returns it as the generator takes it, with what it had emitted."""
        request = self.request
        emitted, salt = tuple(self.emitted), request.tenant
        return NewSequence(
            self.id, request.prompt, self.sampling, emitted, first=request.is_call, salt=salt
        )


def sequences_of(request: Request, context_tokens: int, seed: int) -> Sequence[Sequenced]:
    """Returns the sequences of a request: choice i has the seed plus i, and at most the tokens that
    the context leaves. seed: where the request has none."""
    sampling = request.prompt.request.sampling
    room = max(1, context_tokens - request.prompt.size)
    most = min(sampling.max_tokens or room, room)
    first = seed if sampling.seed is None else sampling.seed
    return [
        Sequenced(request, n, replace(sampling, max_tokens=most, seed=first + n))
        for n in range(request.prompt.request.n)
    ]
