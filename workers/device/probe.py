"""Known-answer probes: a version that was loaded gives the answers that were recorded with it, or
takes nothing."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from jobs.models.inputs.generation import Sampling
from jobs.models.model import Model
from jobs.models.probe import Probe
from workers.device import bisection
from workers.device.prepare import prepare
from workers.engines.generator import Generator, NewSequence, Prompt
from workers.engines.protocol import Engine, InvalidInput, Metered
from workers.items.results import outcome

_TOKENS = 32  # most of a generated answer
_PREFILL = 512  # tokens a step


class ProbeFailed(Exception):
    """A version doesn't give a known answer."""


def check(model: Model, engine: Engine | Generator) -> None:
    """Raises ProbeFailed unless a version gives its known answers, if it has any."""
    if not model.probe:
        return
    try:
        probe = Probe.from_json(model.probe)
    except ValueError as error:
        raise ProbeFailed(f"the recorded probe can't be read: {error}") from error
    if problem := probe.problem(answers(model, engine, probe.inputs, probe.params)):
        raise ProbeFailed(problem)


def answers(
    model: Model, engine: Engine | Generator, inputs: Sequence[Any], params: Mapping[str, Any]
) -> list[Any]:
    """Returns the answer to each input, as JSON: each alone in its launch, or the text that greedy
    decoding generates. Raises ProbeFailed where there is none."""
    if isinstance(engine, Generator):
        return [_generated(engine, value, n) for n, value in enumerate(inputs, start=1)]
    outputs = list[Any]()
    for n, entry in enumerate(prepare(model, engine, inputs, params), start=1):
        if isinstance(entry, InvalidInput):
            raise ProbeFailed(f"input {n} is refused: {entry}")
        [output] = bisection.run(engine.run, [entry.data], params)
        raw, error = outcome(output.output if isinstance(output, Metered) else output)
        if raw is None:
            raise ProbeFailed(f"input {n} fails: {': '.join(error or ())}")
        outputs.append(orjson.loads(raw))
    return outputs


def _generated(engine: Generator, value: Any, number: int) -> str:
    [prompt] = engine.prepare([value])
    if not isinstance(prompt, Prompt):
        raise ProbeFailed(f"input {number} is refused: {prompt}")
    engine.add(NewSequence(f"probe/{number}", prompt, _greedy(prompt.request.sampling)))
    text = ""
    while True:
        for emitted in engine.step(_PREFILL).emitted:
            if emitted.error:
                raise ProbeFailed(f"input {number} fails: {emitted.error}")
            text += emitted.text
            if emitted.finish:
                return text


def _greedy(sampling: Sampling) -> Sampling:
    most = min(sampling.max_tokens or _TOKENS, _TOKENS)
    return replace(sampling, max_tokens=most, min_tokens=0, temperature=0.0, seed=0)
