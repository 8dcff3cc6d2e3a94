"""Sequences and a scheduler for tests."""

from math import inf
from typing import Any

from jobs.models.inputs.generation import GenerationRequest, Sampling
from workers.engines.generator import Capacity, Prompt, Step
from workers.generation.requests import Request, Sequenced, sequences_of
from workers.generation.scheduler import Decision, GenerationScheduler

_IDS = iter(range(1_000_000))


def scheduler(
    blocks: int = 100, block_tokens: int = 10, sequences: int = 8, itl_s: float = 0.1
) -> GenerationScheduler:
    return GenerationScheduler(Capacity(blocks, block_tokens, sequences, 1000), itl_s)


def sequence(
    prompt: int = 10, tokens: int = 10, *, call: bool = True, tenant: str = "a", **more: Any
) -> Sequenced:
    sampling = Sampling(max_tokens=tokens)
    asked = Prompt((), prompt, GenerationRequest(prompt="x", sampling=sampling))
    deadline_s = more.pop("deadline_s", 60.0 if call else inf)
    request = Request(f"r{next(_IDS)}", None, call, [asked], 0.0, deadline_s, tenant, **more)
    request.sequences += sequences_of(request, 1000)
    [only] = request.sequences
    return only


def timed(scheduler: GenerationScheduler, prefill_s: float = 0.0, sequence_s: float = 0.0) -> None:
    """Steps take 10 ms, and so much more for each token of a prompt and each sequence."""
    for n in range(200):
        prefill, sequences, kv = 37 * n % 200, 1 + n % 16, 101 * n % 3000
        seconds = 0.01 + prefill_s * prefill + sequence_s * sequences
        scheduler.step_time.observe(seconds, prefill, sequences, kv)


def step(scheduler: GenerationScheduler) -> Decision:
    """One step: prompts are prefilled, and others get a token."""
    decision = scheduler.decide()
    left = decision.prefill_tokens
    decoding = [one for one in scheduler.running if not one.to_prefill]
    for one in decision.prefills:
        if one.to_prefill <= left:
            left -= one.to_prefill
            decoding.append(one)
    scheduler.stepped(Step(prefill_tokens=decision.prefill_tokens - left))
    for one in decoding:
        one.emitted.append(0)
        scheduler.emitted(one, 1)
        if len(one.emitted) == one.sampling.max_tokens:
            one.finish = "length"
            scheduler.remove(one)
    return decision
