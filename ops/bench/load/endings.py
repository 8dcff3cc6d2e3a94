"""Streams of `POST /infer` that end as the benchmark wants, and what their clients saw."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from ops.bench.harness.errors import BenchError

_DATA = "data: "


@dataclass(slots=True)
class EndedStream:
    """Stream as its client saw it."""

    tokens: int = 0
    finish: str = ""  #: finish reason; empty: it has none
    usage: Mapping[str, int] | None = None  #: of the event `done`
    error: str = ""  #: code


@dataclass(frozen=True, slots=True)
class Ending:
    """Way for a stream to end."""

    words: int  #: of the prompt, which are the output's
    fields: Mapping[str, Any]  #: of the input
    request: Mapping[str, Any]  #: fields of the request
    leave_after: int = 0  #: tokens after which the client disconnects; 0: it stays
    leave_ms: float = 0.0  #: after which it disconnects; 0: it stays
    finish: str = ""  #: expected finish reason
    error: str = ""  #: expected error


async def stream(
    http: httpx.AsyncClient, model: str, key: str, ending: Ending, number: int
) -> EndedStream:
    """Runs one stream. Raises BenchError where it ends in another way."""
    seen = EndedStream()
    words = " ".join(f"word{n}" for n in range(ending.words))
    content = [{"role": "user", "content": words}]
    body = {
        "model": model,
        "input": {"messages": content, "temperature": 0, **ending.fields},
        "stream": True,
        **ending.request,
    }
    with suppress(TimeoutError):
        limit_ms = ending.leave_ms * (1 + number % 8) / 8
        async with asyncio.timeout(limit_ms / 1000 or None):
            await _read(http, body, key, seen, ending.leave_after)
    if (seen.finish, seen.error) != (ending.finish, ending.error) and not ending.leave_ms:
        raise BenchError(f"a stream ended as {seen}, not as {ending}")
    return seen


async def _read(
    http: httpx.AsyncClient, body: Any, key: str, seen: EndedStream, leave_after: int
) -> None:
    headers = {"Authorization": f"Bearer {key}"}
    async with http.stream("POST", "/infer", json=body, headers=headers) as response:
        if response.status_code != 200:
            seen.error = orjson.loads(await response.aread())["code"]
            return
        async for line in response.aiter_lines():
            if not line.startswith(_DATA):
                continue
            event = orjson.loads(line.removeprefix(_DATA))
            seen.tokens += len(event.get("tokens", ()))
            seen.finish = event.get("finish_reason", seen.finish)
            seen.usage = event.get("usage", seen.usage)
            seen.error = event.get("code", seen.error)
            if leave_after and seen.tokens >= leave_after:
                return
