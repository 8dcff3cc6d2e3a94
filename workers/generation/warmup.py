"""Warm-up of a generator: a few sequences, whose steps tell how long steps take."""

from jobs import clock
from jobs.models.inputs.generation import Sampling
from workers.engines.generator import Generator, NewSequence, Prompt
from workers.generation.step_time import StepTime

_INPUT = {"prompt": "The quick brown fox jumps over the lazy dog. " * 6}
_TOKENS = 8
_LONGEST_S = 10.0
_PREFILL = 1024


def warm_up(generator: Generator, step_time: StepTime) -> None:
    """Runs one sequence, then two, then four. The first steps only warm up.

    Raises GeneratorDied.
    """
    [prompt] = generator.prepare([_INPUT])
    if not isinstance(prompt, Prompt):
        return
    until_s = clock.monotonic() + _LONGEST_S
    for count in (1, 1, 2, 4):
        if count > generator.capacity.sequences or clock.monotonic() > until_s:
            return
        _generate(generator, prompt, count, step_time if count > 1 else None)


def _generate(generator: Generator, prompt: Prompt, count: int, step_time: StepTime | None) -> None:
    sampling = Sampling(max_tokens=_TOKENS, min_tokens=_TOKENS, temperature=0.0, seed=0)
    ids = {f"warm-up/{clock.random_bits(62):x}/{n}" for n in range(count)}
    for id in ids:
        generator.add(NewSequence(id, prompt, sampling))
    while ids:
        step = generator.step(_PREFILL)
        if step_time and step.sequences:
            step_time.observe(step.duration_s, step.prefill_tokens, step.sequences, step.kv_tokens)
        ids -= {one.id for one in step.emitted if one.finish or one.error}
