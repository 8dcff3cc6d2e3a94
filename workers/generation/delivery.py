"""Delivery of generated text: deltas and replies of calls, outcomes of items."""

from collections.abc import Sequence
from typing import Any

from jobs.calls.messages import Call, ChoiceDelta, Delta, Reply
from workers.engines.generator import Emitted
from workers.generation.completion import completion, echoed, logprob_objects, storable
from workers.generation.monitoring.recorder import Recorder
from workers.generation.requests import Request, Sequenced
from workers.generation.sender import Sender
from workers.items.in_flight import InFlightSlice, ItemOutcome, end_together
from workers.items.results import outcome


class Delivery:
    """Collects what one step produced, then delivers it at once. model: name@version."""

    def __init__(self, model: str, sender: Sender, recorder: Recorder) -> None:
        self._model, self._sender, self._recorder = model, sender, recorder
        self._parts: dict[Request, list[ChoiceDelta]] = {}
        self._deltas: list[tuple[str, Delta]] = []
        self._replies: list[tuple[str, Reply]] = []
        self._items: list[tuple[InFlightSlice, ItemOutcome]] = []

    def add(self, sequence: Sequenced, emitted: Emitted, now_s: float) -> None:
        """Adds new tokens of a sequence, to which they were appended before."""
        self._recorder.emitted(sequence, now_s)
        request = sequence.request
        if not request.streams:
            return
        parts = self._parts.setdefault(request, [])
        if len(sequence.emitted) == len(emitted.tokens) and (prompt := echoed(sequence)):
            parts.append(ChoiceDelta(sequence.index, prompt))
        part = ChoiceDelta(
            sequence.index,
            storable(emitted.text),
            list(emitted.tokens),
            logprob_objects(emitted.logprobs),
            emitted.finish,
            emitted.stopped_by,
        )
        parts.append(part)

    def end(self, request: Request, now_s: float, error: Any = None) -> None:
        """Adds the end of a request. error: an exception, or (code, message) of a call."""
        self._recorder.ended(request, now_s, error)
        output = completion(request, self._model) if error is None else error
        if not request.is_call:
            self._items.append((request.owner, _item_outcome(request, output)))
            return
        if parts := self._parts.pop(request, None):
            self._add_delta(request, parts)
        self._replies.append((request.owner.reply_to, _reply(request, output, now_s)))

    def deliver(self, *, calls: bool) -> None:
        """Hands over what was added since the last time. calls: some run, and may be dropped."""
        parts, self._parts = self._parts, {}
        replies, self._replies = self._replies, []
        items, self._items = self._items, []
        for request, choices in parts.items():
            self._add_delta(request, choices)
        deltas, self._deltas = self._deltas, []
        if calls or replies:
            self._sender.send(deltas, replies)
        if items:
            end_together(items)

    def _add_delta(self, request: Request, choices: Sequence[ChoiceDelta]) -> None:
        usage = request.usage
        prompt = () if request.deltas else (usage.input, usage.cached)
        delta = Delta(request.id, request.deltas, choices, prompt)
        self._deltas.append((request.owner.reply_to, delta))
        request.deltas += 1


def _item_outcome(request: Request, output: Any) -> ItemOutcome:
    waited_ms = max(0.0, (request.admitted_s or request.arrived_s) - request.arrived_s) * 1000
    usage, us = request.usage, round(request.device_s * 1e6)
    size = usage.input + usage.output
    return ItemOutcome(request.seq, size, waited_ms, None, output, us, request.part, usage)


def _reply(request: Request, output: Any, now_s: float) -> Reply:
    call: Call = request.owner
    text, error = (None, output) if isinstance(output, tuple) else outcome(output)
    usage = request.usage
    return Reply(
        request.id,
        text,
        error,
        usage.input + usage.output,
        timing(request, now_s),
        call.tenant,
        call.job_class,
        round(request.device_s * 1e6),
        usage,
    )


def timing(request: Request, now_s: float) -> dict[str, Any]:
    """Returns the timing of a request that has ended, ms."""
    admitted_s = request.admitted_s or now_s
    first_s = request.first_s or now_s
    longest = max((len(one.emitted) for one in request.sequences), default=0)
    decode_s = max(0.0, now_s - first_s)
    return {
        "queue_ms": _ms(admitted_s - request.arrived_s),
        "prefill_ms": _ms(first_s - admitted_s),
        "decode_ms": _ms(decode_s),
        "ttft_ms": _ms(first_s - request.arrived_s),
        "itl_ms": _ms(decode_s / (longest - 1)) if longest > 1 else 0.0,
        "longest_gap_ms": _ms(request.token_times.longest_gap_s),
        "predicted_ms": _ms(request.predicted_s),
        "deltas": request.deltas,
        "preemptions": request.preemptions,
        "token_ms": request.token_times.since_ms(request.arrived_s),
    }


def rejected(owners: Sequence[Any], seqs: Sequence[int], parts: Sequence[int], why: Any) -> None:
    """Ends items that the model refuses. why: an InvalidInput each."""
    refused = zip(owners, seqs, parts, why, strict=True)
    end_together([(o, ItemOutcome(s, 0, 0.0, None, no, part=p)) for o, s, p, no in refused])


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3) if seconds > 0 else 0.0
