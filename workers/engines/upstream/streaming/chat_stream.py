"""One chat that an upstream streams: its request as OpenAI's body, its chunks as emitted tokens."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import orjson

from jobs.models.inputs.chat import token_usage
from jobs.models.inputs.generation import GenerationRequest, Sampling, TokenUsage
from workers.engines.generator import Emitted, FinishReason, NewSequence, TokenLogprob
from workers.engines.protocol import Permanent, Transient
from workers.engines.upstream.streaming.stream_requester import StreamRequester

UNKNOWN_TOKEN = -1
"""Id of tokens in a chunk: an upstream tells their text, not their ids. A chunk counts as one."""

_DATA, _DONE = b"data:", b"[DONE]"
_MOST_LINE_BYTES = 1 << 22


class ChatStream:
    """Reads one stream on a thread of its own; `close` is for another one."""

    def __init__(self, id: str, requester: StreamRequester) -> None:
        self.id, self._requester = id, requester
        self._interrupt: Callable[[], None] | None = None
        self._closed = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the stream: the upstream sees that its client has left."""
        with self._lock:
            self._closed = True
            if self._interrupt:
                self._interrupt()

    def read(self, url: str, body: bytes) -> Iterator[Emitted]:
        """Yields what arrives; the last has a finish reason. Raises what `StreamRequester.open`
        raises, and Transient where the stream ends without a finish reason."""
        with self._requester.open(url, body) as response:
            with self._lock:
                self._interrupt = response.interrupt
                if self._closed:
                    return
            answer = _Answer(self.id)
            for chunk in _chunks(response.pieces):
                if emitted := answer.read(chunk):
                    yield emitted
        yield answer.end()


class _Answer:
    """Collects the end of a stream: finish reason, usage and tool calls come in parts."""

    def __init__(self, id: str) -> None:
        self._id = id
        self._finish: FinishReason | None = None
        self._stopped_by: str | int | None = None
        self._usage: TokenUsage | None = None
        self._tools: dict[int, dict[str, str]] = {}

    def read(self, chunk: Mapping[str, Any]) -> Emitted | None:
        """Reads a chunk; returns what it adds to the text. Raises Transient for an error."""
        if error := chunk.get("error"):
            message = error.get("message") if isinstance(error, dict) else error
            raise Transient(f"upstream broke off: {str(message)[:300]}")
        self._usage = token_usage(chunk.get("usage")) or self._usage
        choice = next(iter(chunk.get("choices") or ()), None)
        if choice is None:
            return None
        if reason := choice.get("finish_reason"):
            self._finish = "length" if reason == "length" else "stop"
            stopped_by = choice.get("stop_reason")  # vLLM's: a string, or the id of a token
            self._stopped_by = stopped_by if type(stopped_by) in (str, int) else None
        delta = choice.get("delta") or {}
        for call in delta.get("tool_calls") or ():
            self._add_call(call)
        text = delta.get("content") or ""
        logprobs = (choice.get("logprobs") or {}).get("content") or ()
        found = [_logprob(one) for one in logprobs]
        if not text and not found:  # a part of a character has log probabilities, and no text
            return None
        return Emitted(self._id, [UNKNOWN_TOKEN] * max(1, len(found)), text, found)

    def end(self) -> Emitted:
        """Returns the end of the sequence. Raises Transient where the stream broke off."""
        if not self._finish:
            raise Transient("upstream ended the stream without a finish reason")
        text = "".join(map(_call_text, self._tools.values()))
        if self._finish == "length":  # the last one may be cut
            text = text.removesuffix(_CALL_END)
        tokens = [UNKNOWN_TOKEN] if text else []
        return Emitted(
            self._id,
            tokens,
            text,
            finish=self._finish,
            stopped_by=self._stopped_by,
            usage=self._usage,
        )

    def _add_call(self, part: Mapping[str, Any]) -> None:
        call = self._tools.setdefault(int(part.get("index", 0)), {"name": "", "arguments": ""})
        function = part.get("function") or {}
        for name in call:
            call[name] += function.get(name) or ""


def body_of(new: NewSequence) -> dict[str, Any]:
    """Returns the body of a chat completion with one choice; only what isn't a default."""
    request, sampling = new.prompt.request, new.sampling
    use = request.tool_use
    body = conversation_of(request)
    if use.tools:
        body |= {"tool_choice": use.choice or "auto"}
        body |= {} if use.parallel else {"parallel_tool_calls": False}
    if request.constraint:
        body |= request.constraint.as_upstream
    given = request.sampling
    if given.max_tokens:
        body["max_tokens"] = given.max_tokens
    if given.seed is not None or request.n > 1:
        body["seed"] = sampling.seed
    usual = Sampling()
    for name in _PASSED:
        if (value := getattr(sampling, name)) != getattr(usual, name):
            body[name] = value
    if request.truncation.tokens is not None:
        body["truncate_prompt_tokens"] = request.truncation.tokens
        body |= {"truncation_side": "right"} if request.truncation.keeps_first else {}
    if request.cache_salt:
        body["cache_salt"] = request.cache_salt
    if sampling.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": sampling.logprobs}
        body |= {"return_tokens_as_token_ids": True} if request.tokens_as_ids else {}
    return body


def conversation_of(request: GenerationRequest) -> dict[str, Any]:
    """Returns the messages of a request, with its tools and what the chat template is told."""
    body: dict[str, Any] = {"messages": [_as_sent(one) for one in request.messages or ()]}
    if request.tool_use.tools:
        body["tools"] = request.tool_use.tools
    its = request.rendering
    if its.variables:
        body["chat_template_kwargs"] = its.variables
    if its.effort:
        body["reasoning_effort"] = its.effort
    if its.continue_final_message:
        body["continue_final_message"] = True
    if its.add_special_tokens:
        body["add_special_tokens"] = True
    return body if its.add_generation_prompt else {**body, "add_generation_prompt": False}


def _as_sent(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a message as OpenAI has it, the arguments of its calls as JSON text."""
    if not (calls := message.get("tool_calls")):
        return message
    return {**message, "tool_calls": [_call_as_sent(call) for call in calls]}


def _call_as_sent(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call["function"]
    written = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": {**function, "arguments": written}}


_CALL_END = "}\n</tool_call>"
_PASSED = (
    "temperature", "top_p", "top_k", "min_p", "min_tokens", "presence_penalty",
    "frequency_penalty", "repetition_penalty", "stop", "logit_bias", "ignore_eos",
    "stop_token_ids", "logprob_token_ids", "bad_words", "include_stop_str_in_output",
    "skip_special_tokens",
)  # fmt: skip


def _chunks(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """Yields the JSON of each event of a stream. Raises Permanent where it is none."""
    for line in _lines(pieces):
        data = line.removeprefix(_DATA).strip()
        if not line.startswith(_DATA) or not data:
            continue
        if data == _DONE:
            return
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            raise Permanent("upstream streamed what is not JSON") from None
        if not isinstance(chunk, dict):
            raise Permanent("upstream streamed what is no object")
        yield chunk


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from lines
        if len(rest) > _MOST_LINE_BYTES:
            raise Permanent("upstream streamed an event that is too large")
    if rest:
        yield rest


def _logprob(given: Mapping[str, Any]) -> TokenLogprob:
    top = tuple(map(_logprob, given.get("top_logprobs") or ()))
    told = given.get("bytes")
    try:
        raw = bytes(told) or None if isinstance(told, list) else None
    except (TypeError, ValueError):
        raw = None
    return TokenLogprob(UNKNOWN_TOKEN, str(given["token"]), float(given["logprob"]), top, raw)


def _call_text(call: Mapping[str, str]) -> str:
    """Writes a tool call as models do whose calls stand in their text (Hermes)."""
    arguments = call["arguments"] or "{}"
    name = orjson.dumps(call["name"]).decode()
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}{_CALL_END}'
