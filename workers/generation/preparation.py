"""Inputs of calls and items as requests of a generation host."""

from collections.abc import Sequence
from math import inf
from typing import Any
from uuid import uuid4

from jobs import clock
from jobs.calls.messages import Call
from workers.engines.generator import Generator, Prompt
from workers.engines.protocol import InvalidInput
from workers.generation.requests import Request
from workers.items.in_flight import InFlightSlice


def prepare(generator: Generator, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
    """Prepares inputs, one at a time where the generator raises, to isolate what fails."""
    try:
        return generator.prepare(inputs)
    except Exception as error:
        if len(inputs) == 1:
            return [InvalidInput(f"{type(error).__name__}: {error}")]
        return [prepare(generator, [value])[0] for value in inputs]


def call_request(call: Call, prompt: Prompt) -> Request:
    """Returns a call as a request; its times are on the worker's clock."""
    times = call.enqueued_ms / 1000, call.deadline_ms / 1000
    return Request(
        call.id, call, True, prompt, *times, call.tenant, call.weight, streams=call.stream
    )


def item_request(owner: InFlightSlice, seq: int, part: int, prompt: Prompt) -> Request:
    """Returns an item of a slice as a request."""
    lease, times = owner.lease, (clock.monotonic(), inf)
    named = uuid4().hex, owner, False, prompt
    return Request(*named, *times, lease.tenant, lease.weight, seq, part, place=(*lease.place, seq))
