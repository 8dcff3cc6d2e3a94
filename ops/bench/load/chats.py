"""Streamed chats over HTTP: when each piece of text arrived, and how the stream ended."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from jobs import clock
from ops.bench.harness.errors import BenchError

_TIMEOUT_S = 600.0
_PATH = "/v1/chat/completions"
_DATA, _DONE = "data: ", "[DONE]"


@dataclass(slots=True)
class StreamedChat:
    """One stream, on the process's clock."""

    due_s: float  #: when it was to be sent
    arrived_s: list[float] = field(default_factory=list)  #: chunks that had text
    text: str = ""
    finish: str = ""  #: finish reason; empty: the stream broke off, or was refused
    usage: dict[str, Any] = field(default_factory=dict)
    error: str = ""

    @property
    def ttft_ms(self) -> float:
        """Time to the first text, from when it was due."""
        return (self.arrived_s[0] - self.due_s) * 1000

    @property
    def gaps_ms(self) -> list[float]:
        """Times between two chunks with text."""
        pairs = zip(self.arrived_s, self.arrived_s[1:], strict=False)
        return [(later - earlier) * 1000 for earlier, later in pairs]


@dataclass(frozen=True, slots=True)
class ChatClient:
    """Client of one model's streams; key: API key, empty: none."""

    http: httpx.AsyncClient
    model: str
    key: str = ""

    async def stream(
        self,
        body: dict[str, Any],
        due_s: float = 0.0,
        on_text: Callable[[StreamedChat], bool] = lambda chat: True,
    ) -> StreamedChat:
        """Streams one chat. on_text: called after each text; False disconnects."""
        chat = StreamedChat(due_s or clock.monotonic())
        body = {**body, "model": self.model, "stream": True}
        body["stream_options"] = {"include_usage": True}
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        async with self.http.stream("POST", _PATH, json=body, headers=headers) as response:
            if response.status_code != 200:
                chat.error = (await response.aread()).decode()
                return chat
            async for line in response.aiter_lines():
                if not line.startswith(_DATA) or line.endswith(_DONE):
                    continue
                _read(chat, orjson.loads(line.removeprefix(_DATA)))
                if chat.arrived_s and not chat.finish and not on_text(chat):
                    break
        return chat


def _read(chat: StreamedChat, chunk: dict[str, Any]) -> None:
    if "error" in chunk:
        chat.error = str(chunk["error"])
    chat.usage = chunk.get("usage") or chat.usage
    for choice in chunk.get("choices", ()):
        if text := choice["delta"].get("content"):
            chat.arrived_s.append(clock.monotonic())
            chat.text += text
        chat.finish = choice.get("finish_reason") or chat.finish


def run(url: str, model: str, work: Callable[[ChatClient], Awaitable[Any]], key: str = "") -> Any:
    """Runs asynchronous work with a client of one model; returns its result."""

    async def with_client() -> Any:
        """Opens the client."""
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S, limits=limits) as http:
            return await work(ChatClient(http, model, key))

    return asyncio.run(with_client())


async def at_once(
    client: ChatClient, bodies: Iterable[dict[str, Any]], streams: int
) -> list[StreamedChat]:
    """Streams all, so many at a time. Raises BenchError where one fails."""
    slots = asyncio.Semaphore(streams)

    async def one(body: dict[str, Any]) -> StreamedChat:
        """Streams one when there is room."""
        async with slots:
            return await client.stream(body)

    chats = list(await asyncio.gather(*map(one, bodies)))
    check(chats)
    return chats


async def open_loop(
    client: ChatClient, bodies: Sequence[dict[str, Any]], due_s: Sequence[float]
) -> list[StreamedChat]:
    """Sends each chat when it is due, in seconds from now, whatever happened to earlier ones."""
    since_s = clock.monotonic()

    async def one(body: dict[str, Any], after_s: float) -> StreamedChat:
        """Sends one in time."""
        await asyncio.sleep(since_s + after_s - clock.monotonic())
        return await client.stream(body, since_s + after_s)

    pairs = zip(bodies, due_s, strict=True)
    return list(await asyncio.gather(*(one(body, after_s) for body, after_s in pairs)))


def check(chats: Iterable[StreamedChat]) -> None:
    """Raises BenchError where a stream failed."""
    for chat in chats:
        if not chat.finish or chat.error:
            raise BenchError(f"a stream ended with {chat.error or 'no finish reason'}")


def p95_ttft_ms(chats: Sequence[StreamedChat]) -> float:
    """Returns p95 of the time to the first text, ms. Raises BenchError where a stream failed."""
    check(chats)
    return p95([chat.ttft_ms for chat in chats])


def p95(values: Sequence[float]) -> float:
    """Returns the 95th percentile."""
    return sorted(values)[int(0.95 * len(values))]
