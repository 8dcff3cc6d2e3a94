"""Reader of a native stream that comes back after its connection was lost, at any api."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson

from jobs import clock

RESUME_WITHIN_S = 60
_TRIES, _RETRY_S = 100, 0.1
#: Codes after which the stream goes on elsewhere. `stream_moved`: an api that was stopped has read
#: a request of a connection that was given up meanwhile.
_GOES_ON = frozenset({"api_stopping", "stream_moved"})

Expected = Mapping[int, Sequence[int]]
"""Token ids by choice."""


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """Body of POST /infer, and the kind that it is counted as."""

    kind: str
    body: Mapping[str, Any]


@dataclass(slots=True)
class ReadStream:
    """One stream as its client saw it, on the process's clock."""

    request: StreamRequest
    call_id: str = ""
    tokens: dict[int, list[int]] = field(default_factory=dict)  #: by choice
    texts: Counter[int] = field(default_factory=Counter)  #: characters by choice
    text: dict[int, str] = field(default_factory=dict)  #: by choice
    arrived_s: list[float] = field(default_factory=list)  #: events with tokens
    lost: int = 0  #: tokens
    repeated: int = 0  #: tokens
    connections: int = 0
    last_id: str = ""  #: of the latest event
    usage: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    refusal: str = ""  #: of the latest connection that had none of it
    ended: bool = False  #: with `done`

    @property
    def longest_gap_ms(self) -> float:
        """Longest time between two events with tokens."""
        pairs = zip(self.arrived_s, self.arrived_s[1:], strict=False)
        return max(((later - earlier) * 1000 for earlier, later in pairs), default=0.0)

    def changed(self, expected: Expected) -> int:
        """Counts tokens that differ from those of the undisturbed stream."""
        pairs = [(self.tokens.get(n, []), its) for n, its in expected.items()]
        return sum(a != b for found, its in pairs for a, b in zip(found, its, strict=False))

    def missing(self, expected: Expected) -> int:
        """Counts tokens of the undisturbed stream that did not come, or came beyond it."""
        lengths = [(len(self.tokens.get(n, [])), len(its)) for n, its in expected.items()]
        return self.lost + sum(abs(wanted - found) for found, wanted in lengths)

    def take(self, name: str, data: dict[str, Any]) -> None:
        """Takes one event."""
        if name == "tokens":
            choice, first, tokens = data["choice"], data["index"], data["tokens"]
            found = self.tokens.setdefault(choice, [])
            self.lost += max(0, first - len(found))
            self.repeated += min(len(tokens), max(0, len(found) - first))
            found += tokens[max(0, len(found) - first) :]
            self.text[choice] = self.text.get(choice, "") + data["text"]
            self.arrived_s.append(clock.monotonic())
        elif name == "done":
            self.ended, self.usage = True, data["usage"]
        elif data["code"] not in _GOES_ON:
            self.error = f"{data['code']}: {data['detail']}"


async def read(
    http: httpx.AsyncClient, urls: Sequence[str], request: StreamRequest, most_tries: int = _TRIES
) -> ReadStream:
    """Reads a stream to its end; where its connection is lost, the next api has the rest.

    most_tries: connections in a row without an event."""
    stream, tries = ReadStream(request), 0
    while not (stream.ended or stream.error) and tries < most_tries:
        url = urls[stream.connections % len(urls)]
        stream.connections += 1
        before = stream.last_id
        with suppress(httpx.TransportError):
            await _read_on(http, url, stream)
        tries = 0 if stream.last_id != before else tries + 1
        if not (stream.ended or stream.error):
            await asyncio.sleep(_RETRY_S)
    if not (stream.ended or stream.error):
        stream.error = f"no api went on with it in {most_tries} tries: {stream.refusal}"
    return stream


async def _read_on(http: httpx.AsyncClient, url: str, stream: ReadStream) -> None:
    headers = {"X-Millrace-Resume-Within": str(RESUME_WITHIN_S)}
    if stream.last_id:
        headers["Last-Event-ID"] = stream.last_id
    body, path = stream.request.body, f"{url}/infer"
    async with http.stream("POST", path, json=body, headers=headers) as response:
        if response.status_code != 200:
            stream.refusal = f"{response.status_code}: {(await response.aread()).decode()}"
            if response.status_code not in (502, 503):
                stream.error = stream.refusal
            return
        name, id, data = "", "", b""
        async for line in _lines(response):
            field, _, value = line.partition(b": ")
            if field == b"event":
                name = value.decode()
            elif field == b"data":
                data = value
            elif field == b"id":
                id = value.decode()
            elif not line and name:
                stream.last_id, stream.call_id = id, id.partition("/")[0]
                stream.take(name, orjson.loads(data))
                name = ""


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Splits at newlines alone: texts may hold other line ends of Unicode."""
    rest = b""
    async for chunk in response.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield line


async def read_all(urls: Sequence[str], requests: Sequence[StreamRequest]) -> list[ReadStream]:
    """Reads all at once, the first connection of each at the next api in turn."""
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=600.0, limits=limits) as http:
        turns = [[*urls[n % len(urls) :], *urls[: n % len(urls)]] for n in range(len(requests))]
        pairs = zip(turns, requests, strict=True)
        return list(await asyncio.gather(*(read(http, its, one) for its, one in pairs)))
