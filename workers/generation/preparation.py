"""Inputs of calls and items as requests of a generation host."""

from collections.abc import Mapping, Sequence
from itertools import chain, islice
from math import inf
from typing import Any
from uuid import uuid4

from jobs import clock
from jobs.calls.messages import COUNTED, TOLD, Call, Reply, Told
from jobs.models.adapters import Adapter
from jobs.models.inputs.generation import TokenUsage, split_prompts
from workers.device.adapters.claim_view import unknown_adapter
from workers.engines.generator import Generator, Prompt
from workers.engines.protocol import InvalidInput
from workers.generation.requests import Prompts, Request
from workers.items.in_flight import InFlightSlice
from workers.items.results import outcome

MOST_IDS = 1_000_000
"""Ids of tokens of prompts that one answer has: each choice of a prompt repeats them."""

MOST_SCORES = 200_000
"""Log probabilities of the prompts of one request: of each token and of its likeliest ones. Each is
an object in the generator, in the host, in a log and in the answer."""


def prepare(generator: Generator, inputs: Sequence[Any]) -> list[Prompts | InvalidInput]:
    """Returns the prompts of each input, or why the model refuses it."""
    split = [split_prompts(value) for value in inputs]
    prepared = iter(_prepare(generator, list(chain.from_iterable(split))))
    return [_together(list(islice(prepared, len(values)))) for values in split]


def _together(prepared: Sequence[Prompt | InvalidInput]) -> Prompts | InvalidInput:
    prompts = []
    for n, prompt in enumerate(prepared):
        if isinstance(prompt, InvalidInput):
            return InvalidInput(f"prompt[{n}]: {prompt}") if len(prepared) > 1 else prompt
        prompts.append(prompt)
    return _too_much_reported(prompts) or prompts


def _too_much_reported(prompts: Prompts) -> InvalidInput | None:
    asked, size = prompts[0].request, sum(prompt.size for prompt in prompts)
    if asked.return_token_ids and size * asked.n > MOST_IDS:
        return InvalidInput(
            f"return_token_ids: {size} tokens of the prompt in {asked.n} choices each are over "
            f"{MOST_IDS} ids; ask for fewer choices, or send fewer or shorter prompts"
        )
    if asked.scored is None or size * (asked.scored + 1) <= MOST_SCORES:
        return None
    likeliest = "logprobs" if asked.prompt_logprobs is None else "prompt_logprobs"
    return InvalidInput(
        f"{asked.scored_by}: {size} tokens of the prompt with {asked.scored} likeliest tokens each "
        f"are over {MOST_SCORES} log probabilities; ask for fewer by {likeliest}, or send a "
        "shorter prompt, or fewer prompts at a time"
    )


def _prepare(generator: Generator, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
    """Prepares inputs, one at a time where the generator raises, to isolate what fails."""
    try:
        return generator.prepare(inputs)
    except Exception as error:
        if len(inputs) == 1:
            return [InvalidInput(f"{type(error).__name__}: {error}")]
        return [_prepare(generator, [value])[0] for value in inputs]


def prompt_of(call: Call) -> Any:
    """Returns the input of a call, also of one that asks for its tokens alone."""
    return call.input[COUNTED] if _counts(call) else call.input


def call_requests(
    calls: Sequence[Call],
    prepared: Sequence[Prompts | InvalidInput],
    adapters: Mapping[str, Adapter],
) -> tuple[list[Request], list[tuple[Call, Reply]]]:
    """Returns the requests of calls, and the replies to those that generate nothing: the model
    refuses them, or they ask for their tokens alone."""
    requests, replies = [], []
    for call, prompts in zip(calls, prepared, strict=True):
        if isinstance(prompts, InvalidInput):
            replies.append(unbilled(call, prompts))
        elif _counts(call):
            tokens = sum(prompt.size for prompt in prompts)
            replies.append(unbilled(call, {"input_tokens": tokens}))
        elif call.adapter and call.adapter not in adapters:
            replies.append(unbilled(call, unknown_adapter(call.adapter)))
        else:
            requests.append(_call_request(call, prompts, adapters.get(call.adapter)))
    return requests, replies


def _counts(call: Call) -> bool:
    return isinstance(call.input, dict) and COUNTED in call.input


def told_of(call: Call) -> Told:
    """Returns what a call asks of its prompt beside the count of its tokens."""
    return call.input.get(TOLD, "") if _counts(call) else ""


def unbilled(call: Call, output: Any) -> tuple[Call, Reply]:
    """Returns the reply to a call that generates nothing. output: or an exception."""
    none = 0, TokenUsage()  # what was charged for it is given back
    billed = call.tenant, call.job_class
    return call, Reply(call.id, *outcome(output), 0, {}, *billed, *none, call.adapter, call.billed)


def _call_request(call: Call, prompts: Prompts, adapter: Adapter | None) -> Request:
    # Its times are on the worker's clock by an estimate, which may be a moment ahead.
    times = min(call.enqueued_ms / 1000, clock.monotonic()), call.deadline_ms / 1000
    return Request(
        call.id,
        call,
        True,
        prompts,
        *times,
        call.tenant,
        call.weight,
        take=int(call.holder.rpartition("#")[2] or 0),
        streams=call.stream,
        adapter=adapter,
    )


def item_request(
    owner: InFlightSlice, seq: int, part: int, prompts: Prompts, adapter: Adapter | None
) -> Request:
    """Returns an item of a slice as a request."""
    lease = owner.lease
    return Request(
        uuid4().hex,
        owner,
        False,
        prompts,
        clock.monotonic(),
        inf,
        lease.tenant,
        lease.weight,
        name=f"{lease.job_id}/{seq}/{part}",
        seq=seq,
        part=part,
        place=(*lease.place, seq),
        adapter=adapter,
    )
