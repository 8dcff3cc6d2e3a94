"""Chunks of streamed chat completions and completions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from api.compat.generation.answering import Answer
from api.compat.openai.chat.answers import CHAT, TEXT
from api.compat.openai.errors import as_openai
from api.gateway.inference import CallResult
from api.gateway.streaming.event_stream import event
from jobs.calls.messages import ChoiceDelta, Delta
from jobs.dialects.completions import completion_of
from jobs.errors import MillraceError
from jobs.models.inputs import logprobs
from jobs.models.inputs.tool_calls import Parsed, ToolCallParser

DONE = b"data: [DONE]\n\n"


class _Chunks:
    """Events that both APIs have: all chunks share id, time and model."""

    def __init__(self, answer: Answer, prefix: str, object: str) -> None:
        body = answer.prepared.body
        self._answer = answer
        self._head = {
            "id": answer.id(prefix),
            "object": object,
            "created": answer.created,
            "model": body.model,
        }
        self._counts, self._has_ids = body.continuous_usage, answer.prepared.token_ids
        self._prompt: Sequence[int] = 0, 0  # tokens, and those of them that were cached
        self._output = 0  # tokens so far
        self._usage: dict[str, Any] = {"usage": None} if body.include_usage else {}

    def _count(self, delta: Delta) -> None:
        """Takes the tokens of a delta into the usage so far, where chunks have it."""
        if not self._counts:
            return
        self._prompt = delta.prompt or self._prompt
        self._output += sum(len(choice.tokens) for choice in delta.choices)
        prompt, cached = self._prompt
        self._usage = {
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": self._output,
                "total_tokens": prompt + self._output,
                "prompt_tokens_details": {"cached_tokens": cached},
            }
        }

    def _chunk(self, choice: dict[str, Any], **more: Any) -> bytes:
        return event({**self._head, "choices": [choice], **more, **self._usage})

    def _end(self, usage: Any, result: CallResult) -> bytes:
        if not self._answer.prepared.body.include_usage:
            return DONE
        degraded = {"degraded": result.plan.degraded} if result.plan.degraded else {}
        return event({**self._head, "choices": [], "usage": usage, **degraded}) + DONE

    def fail(self, error: MillraceError, request_id: str) -> bytes:
        """Implements `EventWriter.fail`: the SDKs raise the error of such an event."""
        return event(as_openai(error, request_id))


class ChatChunks(_Chunks):
    """Writes `chat.completion.chunk` objects."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer, CHAT, "chat.completion.chunk")
        self._parsers: dict[int, ToolCallParser] = {}
        self._wrote = False

    def begin(self) -> bytes:
        """Implements `EventWriter.begin`: a chunk with the role of each choice, unless they have
        the usage or the prompt's tokens, which the first delta tells."""
        return b"" if self._counts or self._has_ids else self._roles()

    def _roles(self, prompt: Sequence[int] = ()) -> bytes:
        """Writes the first chunks. prompt: its tokens, which all choices share."""
        role = {"role": "assistant", "content": "", "refusal": None}
        others = range(1, self._answer.prepared.choices)
        first = self._delta(0, role, prompt_token_ids=prompt) if prompt else self._delta(0, role)
        return first + b"".join(self._delta(n, role) for n in others)

    def write(self, delta: Delta) -> bytes:
        """Implements `EventWriter.write`: a chunk for each choice, and one more for its end."""
        roles = b""
        if not self._wrote and (self._counts or self._has_ids):
            self._count(replace(delta, choices=()))
            roles = self._roles(next((one.prompt_tokens for one in delta.choices), ()))
        self._wrote = True
        self._count(delta)
        return roles + b"".join(map(self._choice, delta.choices))

    def _of_prompt(self, choice: ChoiceDelta) -> bytes:
        """Writes vLLM's field of an answer, once: all choices have one prompt."""
        if choice.index or not choice.prompt_logprobs:
            return b""
        reported = {"prompt_logprobs": choice.prompt_logprobs}
        return event({**self._head, "choices": [], **reported, **self._usage})

    def end(self, result: CallResult) -> bytes:
        """Implements `EventWriter.end`; an output without deltas is a chunk of each choice."""
        completion = completion_of(result.output, tools=self._answer.prepared.tools)
        if self._wrote:
            return self._end(completion.get("usage"), result)
        roles = b""
        if self._counts:
            self._usage = {"usage": completion.get("usage")}
        if self._counts or self._has_ids:
            roles = self._roles(completion.get("prompt_token_ids") or ())
        whole = b"".join(map(self._message, completion["choices"]))
        return roles + whole + self._end(completion.get("usage"), result)

    def _choice(self, choice: ChoiceDelta) -> bytes:
        parsed, reason = self._parsed(choice), choice.finish
        chunks = [self._of_prompt(choice)] if choice.prompt_logprobs else []
        parser = self._parsers.get(choice.index)
        if parsed.text or choice.logprobs or (self._has_ids and choice.tokens):
            seen = {"content": choice.logprobs, "refusal": None} if choice.logprobs else None
            ends = reason if not (parser and parser.calls) else None
            by = choice.stopped_by if ends else None
            delta, ids = {"content": parsed.text}, choice.tokens
            chunks.append(self._delta(choice.index, delta, seen, ends, by, ids))
            if ends:
                return b"".join(chunks)
        if parser and parsed.calls:
            first = parser.calls - len(parsed.calls)
            calls = [{"index": first + n, **call} for n, call in enumerate(parsed.calls)]
            chunks.append(self._delta(choice.index, {"tool_calls": calls}))
        if reason:
            reason = "tool_calls" if reason == "stop" and parser and parser.calls else reason
            chunks.append(
                self._delta(choice.index, {}, finish=reason, stopped_by=choice.stopped_by)
            )
        return b"".join(chunks)

    def _parsed(self, choice: ChoiceDelta) -> Parsed:
        if not self._answer.prepared.tools:
            return Parsed(choice.text)
        parser = self._parsers.setdefault(choice.index, ToolCallParser())
        parsed = parser.feed(choice.text)
        if not choice.finish:
            return parsed
        rest = parser.finish(cut=choice.finish == "length")
        return Parsed(parsed.text + rest.text, parsed.calls + rest.calls)

    def _message(self, choice: dict[str, Any]) -> bytes:
        message, index = choice.get("message") or {}, choice.get("index", 0)
        delta = {"content": message.get("content")}
        if calls := message.get("tool_calls"):
            delta["tool_calls"] = [{"index": n, **call} for n, call in enumerate(calls)]
        reason = choice.get("finish_reason") or "stop"
        end = self._delta(index, {}, finish=reason, stopped_by=choice.get("stop_reason"))
        tokens = choice.get("token_ids") or ()
        return self._delta(index, delta, choice.get("logprobs"), tokens=tokens) + end

    def _delta(
        self,
        index: int,
        delta: dict[str, Any],
        seen: Any = None,
        finish: str | None = None,
        stopped_by: Any = None,
        tokens: Sequence[int] = (),
        **more: Any,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": seen, "finish_reason": finish}
        if self._has_ids and tokens:
            choice["token_ids"] = tokens
        return self._chunk(choice | _stop_reason(stopped_by), **more)


class TextChunks(_Chunks):
    """Writes `text_completion` objects, each with a part of a text."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer, TEXT, "text_completion")
        self._characters: Counter[int] = Counter()  # of prompt and tokens so far, by choice
        self._prompts: dict[int, Sequence[int]] = {}  # their tokens, for the next chunk of a choice

    def begin(self) -> bytes:
        """Implements `EventWriter.begin`."""
        return b""

    def write(self, delta: Delta) -> bytes:
        """Implements `EventWriter.write`."""
        self._count(delta)
        return b"".join(map(self._choice, delta.choices))

    def end(self, result: CallResult) -> bytes:
        """Implements `EventWriter.end`."""
        return self._end(completion_of(result.output, tools=False).get("usage"), result)

    def _choice(self, choice: ChoiceDelta) -> bytes:
        seen, size = None, len(choice.text)
        if choice.logprobs:
            seen = logprobs.of_completion(choice.logprobs, self._characters[choice.index])
            if choice.tokens:  # their text may be held back; that of a prompt isn't
                size = sum(len(one["token"]) for one in choice.logprobs)
        self._characters[choice.index] += size
        reported = choice.prompt_logprobs
        ids = self._ids(choice) if self._has_ids else {}
        if choice.prompt_tokens and not (choice.text or reported):
            self._prompts[choice.index] = choice.prompt_tokens
            return b""
        return self._chunk(
            {
                "index": choice.index,
                "text": choice.text,
                "logprobs": seen,
                "finish_reason": choice.finish,
            }
            | ids
            | _stop_reason(choice.stopped_by)
            | ({"prompt_logprobs": reported} if reported else {})
        )

    def _ids(self, choice: ChoiceDelta) -> dict[str, Any]:
        """Returns vLLM's fields of tokens; those of the prompt come once a choice."""
        prompt = choice.prompt_tokens or self._prompts.pop(choice.index, ())
        ids: dict[str, Any] = {"prompt_token_ids": prompt} if prompt else {}
        return ids | {"token_ids": choice.tokens}


def _stop_reason(stopped_by: Any) -> dict[str, Any]:
    return {} if stopped_by is None else {"stop_reason": stopped_by}
