"""Events of streamed responses: those of a call as it runs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from api.compat.generation.answering import Answer
from api.compat.openai.responses.requests import ResponseBody
from api.gateway.inference import CallResult
from api.gateway.streaming.event_stream import event
from jobs import clock
from jobs.calls.messages import Delta
from jobs.dialects.completions import completion_of
from jobs.dialects.responses.objects import (
    PREFIX,
    choice_of,
    failed,
    gained,
    refusing_others,
    response_object,
)
from jobs.dialects.responses.output import Event, OutputBuilder
from jobs.errors import MillraceError


class Numbered:
    """Numbers events, and writes them as server-sent events. after: number of the last one that
    the client has; it gets those behind it."""

    def __init__(self, after: int = -1) -> None:
        self._next, self._after = 0, after

    def write(self, events: Sequence[Event]) -> bytes:
        """Returns the next events that the client lacks."""
        pieces = []
        for one in events:
            if self._next > self._after:
                numbered = {**one, "sequence_number": self._next}
                pieces.append(event(numbered, str(one["type"])))
            self._next += 1
        return b"".join(pieces)

    def write_last(self, last: Event) -> bytes:
        """Returns the last event of a response that failed: the text before it is no longer known,
        so its number is behind any that the client has."""
        self._next = max(self._next, self._after + 1)
        return self.write([last])


def begun(response: Mapping[str, Any], *, queued: bool = False) -> list[Event]:
    """Returns the events with which a response begins. queued: it waits as a job first."""
    waiting = {**response, "status": "queued" if queued else "in_progress"}
    kinds = [("response.created", waiting)]
    kinds += [("response.queued", waiting)] if queued else []
    kinds += [("response.in_progress", {**response, "status": "in_progress"})]
    return [{"type": kind, "response": shown} for kind, shown in kinds]


def ended(response: Mapping[str, Any]) -> Event:
    """Returns the last event of a response; a cancelled one has no event of its own at OpenAI."""
    status = response["status"]
    kind = status if status in ("completed", "incomplete") else "failed"
    return {"type": f"response.{kind}", "response": response}


class ResponseEvents:
    """Writes the events of a response whose call streams."""

    def __init__(self, answer: Answer, took: Callable[[], int]) -> None:
        """took: returns the time of the response's end, seconds since 1970."""
        assert isinstance(answer.prepared.body, ResponseBody)
        self._answer, self._shown, self._took = answer, answer.prepared.body.shown, took
        self._builder = OutputBuilder(answer.id(""), tools=answer.prepared.tools)
        self._numbered = Numbered()
        self._fed = False

    def begin(self) -> bytes:
        """Implements `EventWriter.begin`."""
        return self._numbered.write(begun(self._response()))

    def write(self, delta: Delta) -> bytes:
        """Implements `EventWriter.write`."""
        self._fed = self._fed or bool(delta.choices)
        return b"".join(
            self._numbered.write(self._builder.feed(choice.text, choice.logprobs))
            for choice in delta.choices
        )

    def end(self, result: CallResult) -> bytes:
        """Implements `EventWriter.end`; an output without deltas comes as one."""
        completion = completion_of(result.output, tools=False)
        with refusing_others():
            choice = choice_of(completion)
            complete = choice.get("finish_reason") not in ("length", "content_filter")
            if self._fed:
                events = self._builder.finish(complete=complete)
            else:
                events = self._builder.take_message(choice["message"], complete=complete)
            gain = gained(self._builder.items, completion, ended_at=self._took())
        last = ended(self._response(gain, self._answer.prepared.shown_model(result.plan)))
        return self._numbered.write([*events, last])

    def fail(self, error: MillraceError, request_id: str) -> bytes:
        """Implements `EventWriter.fail`."""
        gain = failed(error.code, error.detail, self._builder.items)
        return self._numbered.write([ended(self._response(gain))])

    def _response(
        self, gain: Mapping[str, Any] | None = None, model: str | None = None
    ) -> dict[str, Any]:
        shown = self._shown if model is None else {**self._shown, "model": model}
        return response_object(self._answer.id(f"{PREFIX}_"), self._answer.created, shown, gain)


def now() -> int:
    """Returns the time, seconds since 1970."""
    return int(clock.now().timestamp())
