"""Records of calls that generate for the rollout that they are part of: one a call.

The device time of a call isn't among them: a step's time is shared by the sequences in it, of which
a canary with a small share of the calls has fewer.
"""

from collections import defaultdict
from collections.abc import Sequence

import orjson

from jobs.calls.messages import Call, Reply
from jobs.models.model import Model
from jobs.rollouts.cohorts import Cohort, parse
from jobs.rollouts.records import LaunchRecord
from workers.device.monitoring.rollout_records import RecordStreams

_WITHDRAWN = "cancelled"  # by its client


class CallRecords:
    """Records the calls of one model that have ended."""

    def __init__(self, model: Model, streams: RecordStreams) -> None:
        self._model, self._streams = model, streams

    def add(self, ends: Sequence[tuple[Call, Reply]]) -> None:
        """Records calls with their replies."""
        by_rollout = defaultdict[str, list[Sequence[LaunchRecord]]](list)
        for call, reply in ends:
            cohort = parse(call.cohort) if call.cohort else None
            if cohort and cohort.lane != "stable" and not _is_withdrawn(reply):
                by_rollout[cohort.rollout].append([record_of(self._model, cohort, reply)])
        for rollout, calls in by_rollout.items():
            self._streams.write(rollout, *calls)


def _is_withdrawn(reply: Reply) -> bool:
    return reply.error is not None and reply.error[0] == _WITHDRAWN


def record_of(model: Model, cohort: Cohort, reply: Reply) -> LaunchRecord:
    """Returns the record of a call that has ended."""
    if cohort.lane == "missed":
        return LaunchRecord(0.0, cohort.lane, unit=cohort.caller)
    lasted_ms = reply.timing.get("ttft_ms", 0.0) + reply.timing.get("decode_ms", 0.0)
    if reply.error or not reply.output:
        return LaunchRecord(0.0, cohort.lane, 1, 1, cohort.caller, lasted_ms=lasted_ms)
    choices = orjson.loads(reply.output)["choices"]
    return LaunchRecord(
        0.0,
        cohort.lane,
        unit=cohort.caller,
        price=_price(model, reply),
        empty=sum(map(_is_empty, choices)),
        truncated=sum(choice["finish_reason"] == "length" for choice in choices),
        ttft_ms=reply.timing["ttft_ms"],
        itl_ms=reply.timing["itl_ms"],
        lasted_ms=lasted_ms,
    )


def _is_empty(choice: dict[str, object]) -> bool:
    message = choice.get("message")
    if isinstance(message, dict):
        return not message.get("content") and not message.get("tool_calls")
    return not choice.get("text")


def _price(model: Model, reply: Reply) -> float:
    """Returns the price of a call's tokens in the class `standard`; their number, where the model
    has none."""
    if not (used := reply.tokens):
        return 0.0
    rates = model.price.rates("standard")
    price = rates.item + rates.input_token * (used.input - used.cached)
    price += rates.cached_token * used.cached + rates.output_token * used.output
    return float(price) or float(used.input + used.output)
