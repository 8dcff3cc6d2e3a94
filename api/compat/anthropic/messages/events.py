"""Events of a streamed message."""

from collections.abc import Mapping
from typing import Any

import orjson

from api.compat.anthropic.errors import as_anthropic
from api.compat.generation.answering import Answer
from api.gateway.inference import CallResult
from api.gateway.streaming.event_stream import event
from jobs.calls.messages import ChoiceDelta, Delta
from jobs.dialects.completions import completion_of
from jobs.dialects.messages import message_of, tool_use, usage_of
from jobs.errors import MillraceError
from jobs.models.inputs.tool_calls import Parsed, ToolCallParser

ID = "msg_"


def message(answer: Answer, result: CallResult) -> dict[str, Any]:
    """Returns the whole message of an answer. Raises MillraceError where its output is none."""
    completion = completion_of(result.output, tools=answer.prepared.tools)
    try:
        shown = answer.prepared.shown_model(result.plan)
        return message_of(completion, answer.id(ID), shown)
    except (ValueError, KeyError, TypeError) as error:
        raise MillraceError(f"the model's output is no message: {error}") from error


class MessageEvents:
    """Writes the events from `message_start` to `message_stop`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._parser = ToolCallParser() if answer.prepared.tools else None
        self._block = 0  # index of the block that is open, or of the next one
        self._open = False
        self._began = self._wrote = False  # with `message_start`; deltas came

    def begin(self) -> bytes:
        """Implements `EventWriter.begin`: nothing, since `message_start` tells the tokens of the
        prompt, which come with the first delta."""
        return b""

    def _begin(self, usage: Mapping[str, int]) -> bytes:
        if self._began:
            return b""
        self._began = True
        start: dict[str, Any] = {
            "id": self._answer.id(ID),
            "type": "message",
            "role": "assistant",
            "model": self._answer.prepared.body.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**usage, "output_tokens": 0},
        }
        return _event("message_start", message=start) + _event("ping")

    def write(self, delta: Delta) -> bytes:
        """Implements `EventWriter.write`."""
        tokens, cached = delta.prompt or (0, 0)
        details = {"cached_tokens": cached}
        usage = usage_of({"prompt_tokens": tokens, "prompt_tokens_details": details})
        return self._begin(usage) + b"".join(map(self._choice, delta.choices))

    def end(self, result: CallResult) -> bytes:
        """Implements `EventWriter.end`; an output without deltas is a delta of each block."""
        whole = message(self._answer, result)
        begun = self._begin(whole["usage"])
        blocks = b"" if self._wrote else b"".join(map(self._whole_block, whole["content"]))
        if not self._block and not self._open and not blocks:
            blocks = self._text("")
        delta = {name: whole[name] for name in ("stop_reason", "stop_sequence")}
        degraded = {"degraded": result.plan.degraded} if result.plan.degraded else {}
        ended_by = _event("message_delta", delta=delta, usage=whole["usage"], **degraded)
        return begun + blocks + self._close() + ended_by + _event("message_stop")

    def fail(self, error: MillraceError, request_id: str) -> bytes:
        """Implements `EventWriter.fail`."""
        return event(as_anthropic(error, request_id), "error")

    def _choice(self, choice: ChoiceDelta) -> bytes:
        parsed = self._parsed(choice)
        parts = [self._text(parsed.text)] if parsed.text else []
        cut = choice.finish == "length"
        parts += [
            self._tool(tool_use(call, cut=cut), call["function"]["arguments"])
            for call in parsed.calls
        ]
        self._wrote = True
        return b"".join(parts)

    def _parsed(self, choice: ChoiceDelta) -> Parsed:
        if self._parser is None:
            return Parsed(choice.text)
        parsed = self._parser.feed(choice.text)
        if not choice.finish:
            return parsed
        rest = self._parser.finish(cut=choice.finish == "length")
        return Parsed(parsed.text + rest.text, parsed.calls + rest.calls)

    def _whole_block(self, block: dict[str, Any]) -> bytes:
        if block["type"] == "text":
            return self._text(block["text"])
        return self._tool(block, orjson.dumps(block["input"]).decode())

    def _text(self, text: str) -> bytes:
        start = b""
        if not self._open:
            start = self._start({"type": "text", "text": ""})
            self._open = True
        return start + self._delta({"type": "text_delta", "text": text})

    def _tool(self, block: dict[str, Any], written: str) -> bytes:
        """Returns the events of a whole block. written: its input, as JSON."""
        before, start = self._close(), self._start({**block, "input": {}})
        delta = self._delta({"type": "input_json_delta", "partial_json": written})
        self._open = True
        return before + start + delta + self._close()

    def _start(self, block: dict[str, Any]) -> bytes:
        return _event("content_block_start", index=self._block, content_block=block)

    def _delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", index=self._block, delta=delta)

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._open, self._block = False, self._block + 1
        return _event("content_block_stop", index=self._block - 1)


def _event(type: str, **fields: Any) -> bytes:
    return event({"type": type, **fields}, type)
