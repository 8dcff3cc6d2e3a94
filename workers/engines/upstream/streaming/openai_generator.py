"""Generator of the engine `openai` with `stream = true`: chats that an OpenAI-compatible server
generates (vLLM, SGLang, llama.cpp, TGI, or Millrace).

Each sequence is a streaming request on a thread of its own. A step collects what has arrived; the
server holds the KV cache, so that blocks aren't counted here. To abort closes the connection.

Items leave room for calls: a part of the concurrency, and what is free of the server's KV cache,
where its metrics tell. A vLLM gets them with a lower priority.
"""

import queue
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import orjson

from jobs import clock
from jobs.models.engines.upstream_options import OpenAIOptions
from jobs.models.inputs.generation import GenerationRequest
from jobs.models.model import Model
from workers.engines.generator import (
    Capacity,
    Emitted,
    NewSequence,
    Prompt,
    Step,
    Tokenized,
    prompts,
)
from workers.engines.protocol import InvalidInput, Room
from workers.engines.upstream.streaming.chat_stream import ChatStream, body_of
from workers.engines.upstream.streaming.continuation import as_rest, continued
from workers.engines.upstream.streaming.server_load import ServerLoad
from workers.engines.upstream.streaming.server_tokenizer import ServerTokenizer
from workers.engines.upstream.streaming.stream_requester import StreamRequester

_WAIT_S = 0.05  # of a step in which nothing arrives
_FOR_CALLS = 8  # one place in so many is kept from items
_ITEM = 1  # priority of an item; lower is earlier, calls have 0
_CONTEXT_TOKENS = 1 << 31  # the server knows; a prompt that is too long is its error


class OpenAIGenerator:
    """Streams chats from an upstream.

    options: default: the model's; headers: added to those of the options.
    """

    def __init__(
        self,
        model: Model,
        options: OpenAIOptions | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._model, self._options = model, options or OpenAIOptions(**model.options)
        self._url = self._options.url.rstrip("/") + "/chat/completions"
        key = self._options.api_key
        headers = {**(headers or {}), **({"Authorization": f"Bearer {key}"} if key else {})}
        self._requester = StreamRequester(model, self._options, headers)
        self._tokenizer = ServerTokenizer(model, self._options, self._requester)
        self._most = self._options.concurrency.max
        self._threads = ThreadPoolExecutor(self._most, thread_name_prefix="upstream-stream")
        self._load = ServerLoad(self._requester.get, self._options.url)
        self._takes_priority = True  # until it refuses one
        self._waiting: dict[str, NewSequence] = {}
        self._streams: dict[str, ChatStream] = {}  # of the host's thread
        self._arrived: queue.SimpleQueue[Emitted] = queue.SimpleQueue()

    @property
    def capacity(self) -> Capacity:
        """Bounds: those of the options; blocks aren't known."""
        takes_over = self._options.continues
        return Capacity(0, 1, self._most, _CONTEXT_TOKENS, resumes=False, takes_over=takes_over)

    def room(self) -> Room:
        """Returns the sequences that the upstream takes now: no more items while its KV cache is
        nearly full, or requests wait there."""
        room = self._requester.room()
        items = 0 if self._load.full else room.launches - room.launches // _FOR_CALLS
        return replace(room, items=items)

    def prepare(self, inputs: Sequence[Any]) -> list[Prompt | InvalidInput]:
        """Prepares inputs, as `Generator.prepare`; sizes are estimates."""
        return prompts(inputs, self._prompt)

    def _prompt(self, value: Any, request: GenerationRequest) -> Prompt:
        if request.messages is None:
            raise ValueError(f"{self._model.key} takes messages, not a prompt")
        if request.prompt_logprobs is not None:
            raise ValueError(
                "prompt_logprobs isn't supported: the model's server streams, and tells them in "
                "whole answers alone; leave it out"
            )
        if request.return_token_ids:
            raise ValueError(
                "return_token_ids isn't supported: the model's server keeps the ids of its tokens; "
                "leave it out"
            )
        return Prompt((), self._model.size(value, {}), request)

    def tokenize(self, request: GenerationRequest) -> Tokenized:
        """Asks the server, as `Generator.tokenize`."""
        return self._tokenizer.tokenize(request)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Asks the server, as `Generator.detokenize`."""
        return self._tokenizer.detokenize(tokens)

    def add(self, sequence: NewSequence) -> None:
        """Adds a sequence; it is sent once the upstream has room."""
        if sequence.id in self._waiting or sequence.id in self._streams:
            raise ValueError(f"{sequence.id} is there already")
        self._waiting[sequence.id] = sequence

    def abort(self, id: str) -> None:
        """Closes the connection of a sequence, or forgets one that waits."""
        self._waiting.pop(id, None)
        if stream := self._streams.pop(id, None):
            stream.close()

    def step(self, max_prefill_tokens: int, prefills: Sequence[str] = ()) -> Step:
        """Sends what there is room for, and returns what has arrived, within a moment."""
        since_s = clock.monotonic()
        self._load.use()
        self._send()
        running = len(self._streams)
        emitted = [each for each in self._collect() if each.id in self._streams]
        for each in emitted:
            if each.finish or each.error:
                self._streams.pop(each.id, None)
        return Step(emitted, clock.monotonic() - since_s, sequences=running)

    def restart(self) -> None:
        """Closes all connections, as a generator that starts again has no sequence."""
        for id in list(self._streams):
            self.abort(id)
        self._waiting.clear()

    def memory_mb(self) -> float:
        """Returns 0: the weights are elsewhere."""
        return 0.0

    def close(self) -> None:
        """Closes all connections, and ends the threads."""
        self.restart()
        self._threads.shutdown()
        self._load.close()
        self._requester.close()

    def _send(self) -> None:
        """Sends what waits and has room, calls first."""
        room = self.room()
        for new in sorted(self._waiting.values(), key=lambda one: not one.first):
            most = room.items if not new.first and room.items is not None else room.launches
            if room.closed_s or len(self._streams) >= most:
                return
            del self._waiting[new.id]
            stream = self._streams[new.id] = ChatStream(new.id, self._requester)
            self._threads.submit(self._read, stream, new)

    def _read(self, stream: ChatStream, new: NewSequence) -> None:
        """Puts what arrives of a stream where `step` finds it; on a thread of its own."""
        try:
            emitting = self._emitted(stream, new)
            for emitted in as_rest(emitting, new) if self._options.continues else emitting:
                self._arrived.put(emitted)
        except Exception as error:
            self._arrived.put(Emitted(stream.id, error=error))

    def _emitted(self, stream: ChatStream, new: NewSequence) -> Iterator[Emitted]:
        model = new.adapter.name if new.adapter else self._options.model
        body = {**body_of(new), "model": model, "stream": True,
                "stream_options": {"include_usage": True}}  # fmt: skip
        if new.emitted and self._options.continues:
            body = continued(body, new)
        if not new.first and self._load.ranks and self._takes_priority:
            try:
                yield from stream.read(self._url, orjson.dumps(body | {"priority": _ITEM}))
                return
            except InvalidInput as error:
                if "priority" not in str(error).lower():
                    raise
                self._takes_priority = False  # it runs without --scheduling-policy priority
        yield from stream.read(self._url, orjson.dumps(body))

    def _collect(self) -> Iterator[Emitted]:
        try:
            yield self._arrived.get(timeout=_WAIT_S)
            while True:
                yield self._arrived.get_nowait()
        except queue.Empty:
            return
