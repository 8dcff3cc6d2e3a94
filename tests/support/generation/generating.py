"""Sequences driven through a generator, as the host does it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from jobs import clock
from jobs.models.inputs.generation import TokenUsage
from tests.support.wait import PATIENCE_S
from workers.engines.generator import Emitted, Generator, NewSequence, Prompt, Step, TokenLogprob

_NUMBERS = count()


@dataclass
class Generated:
    """Everything that one sequence emitted."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[TokenLogprob] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)
    finish: str | None = None
    error: Exception | None = None
    cached: int = 0
    usage: TokenUsage | None = None  #: counted by a server

    @property
    def output(self) -> int:
        """Number of its tokens: as the server counted, where there is one."""
        return self.usage.output if self.usage else len(self.tokens)

    def add(self, emitted: Emitted) -> None:
        assert self.finish is None
        if not self.tokens:
            self.cached = emitted.cached
        self.tokens += emitted.tokens
        self.text += emitted.text
        self.logprobs += emitted.logprobs
        self.prompt_logprobs += emitted.prompt_logprobs
        self.finish, self.error, self.usage = emitted.finish, emitted.error, emitted.usage


def prepared(generator: Generator, value: Any) -> Prompt:
    """Returns the prompt of an input, or of a text with greedy sampling."""
    if isinstance(value, str):
        value = {"prompt": value, "temperature": 0}
    [prompt] = generator.prepare([value])
    assert isinstance(prompt, Prompt), prompt
    return prompt


def sequence(generator: Generator, value: Any, *, salt: str = "", **sampling: Any) -> NewSequence:
    prompt = prepared(generator, value)
    return new_sequence(prompt, salt=salt, **sampling)


def new_sequence(prompt: Prompt, *, salt: str = "", **sampling: Any) -> NewSequence:
    """Returns a new sequence of a prompt, with an id of its own."""
    given = replace(prompt.request.sampling, **{"max_tokens": 12} | sampling)
    return NewSequence(f"s{next(_NUMBERS)}", prompt, given, salt=salt)


def resumed(one: NewSequence, emitted: Sequence[int]) -> NewSequence:
    """Returns the sequence as the host adds it again after a preemption."""
    return replace(one, id=f"s{next(_NUMBERS)}", emitted=tuple(emitted))


def run(
    generator: Generator,
    sequences: Sequence[NewSequence],
    *,
    prefill: int = 64,
    steps: list[Step] | None = None,
) -> list[Generated]:
    """Adds sequences and steps until all have ended; returns what they generated, in order."""
    for one in sequences:
        generator.add(one)
    found = {one.id: Generated() for one in sequences}
    finish(generator, found, prefill=prefill, steps=steps)
    return [found[one.id] for one in sequences]


def finish(
    generator: Generator,
    found: Mapping[str, Generated],
    *,
    prefill: int = 64,
    steps: list[Step] | None = None,
) -> None:
    """Steps until these sequences have ended."""
    idle_s = 0.0  # a grammar may be compiled meanwhile
    while not all(one.finish or one.error for one in found.values()):
        step = generator.step(prefill)
        if steps is not None:
            steps.append(step)
        for emitted in step.emitted:
            found[emitted.id].add(emitted)
        idle_s = 0.0 if step.sequences else idle_s or clock.monotonic()
        assert not idle_s or clock.monotonic() < idle_s + PATIENCE_S, "no sequence makes progress"
