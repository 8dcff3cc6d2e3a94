"""Delivery of generated text: deltas and replies of calls, outcomes of items."""

from collections.abc import Sequence
from typing import Any

from jobs.calls.messages import Call, ChoiceDelta, Delta, Reply
from jobs.calls.streams.log import Progress
from jobs.models.adapters import adapted_key
from workers.engines.generator import Emitted
from workers.generation.calls.resumption import Notes
from workers.generation.calls.sender import Sender
from workers.generation.completion import completion, logprob_objects, opening, storable
from workers.generation.monitoring.recorder import Recorder
from workers.generation.requests import Request, Sequenced
from workers.items.in_flight import InFlightSlice, ItemOutcome, end_together
from workers.items.results import outcome


class Delivery:
    """Collects what one step produced, then delivers it at once. model: name@version;
    takes_over: whole answers, too, go on from a log."""

    def __init__(self, model: str, sender: Sender, recorder: Recorder, *, takes_over: bool) -> None:
        self._model, self._sender, self._recorder = model, sender, recorder
        self._takes_over = takes_over
        self._began = set[Request]()  # with the first tokens of a choice
        self._parts: dict[Request, list[ChoiceDelta]] = {}
        self._progress: list[Progress] = []
        self._ends: list[tuple[Call, Reply]] = []
        self._items: list[tuple[InFlightSlice, ItemOutcome]] = []

    def add(self, sequence: Sequenced, emitted: Emitted, now_s: float) -> None:
        """Adds new tokens of a sequence, to which they were appended before."""
        self._recorder.emitted(sequence, now_s)
        request = sequence.request
        begins = len(sequence.emitted) == len(emitted.tokens)
        asked = sequence.prompt.request
        if begins and (emitted.prompt_logprobs or asked.echo or asked.return_token_ids):
            sequence.opening = opening(sequence, emitted.prompt_logprobs)
        if not (request.is_call and (request.streams or self._takes_over)):
            return
        parts = self._parts.setdefault(request, [])
        if begins:
            self._began.add(request)
            if sequence.opening:
                parts.append(sequence.opening)
        part = ChoiceDelta(
            sequence.index,
            storable(emitted.text),
            list(emitted.tokens),
            logprob_objects(emitted.logprobs, asked),
            emitted.finish,
            sequence.stop_reason(emitted),
        )
        parts.append(part)

    def end(self, request: Request, now_s: float, error: Any = None) -> None:
        """Adds the end of a request. error: an exception, or (code, message) of a call."""
        self._recorder.ended(request, now_s, error)
        output = completion(request, self._served(request)) if error is None else error
        if not request.is_call:
            self._items.append((request.owner, _item_outcome(request, output)))
            return
        if parts := self._parts.pop(request, None):
            self._add_delta(request, parts)
        reply = _reply(request, output, now_s, self._recorder.worker)
        self._ends.append((request.owner, reply))

    def deliver(self) -> None:
        """Hands over what was added since the last time."""
        parts, self._parts = self._parts, {}
        ends, self._ends = self._ends, []
        items, self._items = self._items, []
        for request, choices in parts.items():
            self._add_delta(request, choices)
        progress, self._progress = self._progress, []
        if progress or ends:
            self._sender.send(progress, ends)
        if items:
            end_together(items)

    def _served(self, request: Request) -> str:
        """Returns the name@version that a request was for."""
        if request.adapter is None:
            return self._model
        return adapted_key(self._model, request.adapter.name)

    def _add_delta(self, request: Request, choices: Sequence[ChoiceDelta]) -> None:
        usage = request.usage
        prompt = () if request.deltas else (usage.input, usage.cached)
        delta = Delta(request.id, request.deltas, choices, prompt)
        notes = Notes.from_request(request).pack() if request in self._began else b""
        self._began.discard(request)
        self._progress.append(Progress(request.owner, delta, notes))
        request.deltas += 1


def _item_outcome(request: Request, output: Any) -> ItemOutcome:
    waited_ms = max(0.0, (request.admitted_s or request.arrived_s) - request.arrived_s) * 1000
    usage, us = request.usage, round(request.device_s * 1e6)
    return ItemOutcome(
        request.seq, usage.input + usage.output, waited_ms, None, output, us, request.part,
        tokens=usage, truncated=usage.truncated,
    )  # fmt: skip


def _reply(request: Request, output: Any, now_s: float, worker: str) -> Reply:
    call: Call = request.owner
    text, error = (None, output) if isinstance(output, tuple) else outcome(output)
    usage, timed = request.usage, timing(request, now_s) | {"worker": worker}
    if usage.truncated and not error:
        timed["truncated"] = usage.truncated
    return Reply(
        request.id,
        text,
        error,
        usage.input + usage.output,
        timed,
        call.tenant,
        call.job_class,
        round(request.device_s * 1e6),
        usage,
        call.adapter,
        call.billed,
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
        "deltas": request.deltas if request.streams else 0,
        "preemptions": request.preemptions,
        "token_ms": request.token_times.since_ms(request.arrived_s),
    }


def rejected(owners: Sequence[Any], seqs: Sequence[int], parts: Sequence[int], why: Any) -> None:
    """Ends items that the model refuses. why: an InvalidInput each."""
    refused = zip(owners, seqs, parts, why, strict=True)
    end_together([(o, ItemOutcome(s, 0, 0.0, None, no, part=p)) for o, s, p, no in refused])


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3) if seconds > 0 else 0.0
