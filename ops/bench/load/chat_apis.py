"""Texts of chats through each API: one by one, streamed, and as batches."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import httpx
import orjson

from jobs import clock
from ops.bench.harness.errors import BenchError

_TIMEOUT_S = 600.0
_POLL_S = 0.2
_CALL_MS = 120_000  # a call's own limit
_DATA, _DONE = "data: ", "[DONE]"

Body = Mapping[str, Any]
Call = Callable[[httpx.AsyncClient, str, Body], Awaitable[str]]


def run(call: Call, url: str, model: str, bodies: Sequence[Body], at_once: int) -> list[str]:
    """Returns the text of each chat, so many at a time."""

    async def all_of_them() -> list[str]:
        """Sends all."""
        slots = asyncio.Semaphore(at_once)
        async with httpx.AsyncClient(base_url=url, timeout=_TIMEOUT_S) as http:

            async def one(body: Body) -> str:
                """Sends one when there is room."""
                async with slots:
                    return await call(http, model, body)

            return list(await asyncio.gather(*map(one, bodies)))

    return asyncio.run(all_of_them())


async def infer(http: httpx.AsyncClient, model: str, body: Body) -> str:
    """Sends POST /infer."""
    asked = {"model": model, "input": body, "timeout_ms": _CALL_MS}
    output = _json(await http.post("/infer", json=asked))["output"]
    return str(output["choices"][0]["message"]["content"])


async def infer_stream(http: httpx.AsyncClient, model: str, body: Body) -> str:
    """Sends POST /infer, streamed."""
    asked = {"model": model, "input": body, "stream": True}
    events = [event async for event in _events(http, "/infer", asked)]
    return "".join(event.get("text", "") for event in events)


async def chat_completion(http: httpx.AsyncClient, model: str, body: Body) -> str:
    """Sends POST /v1/chat/completions."""
    found = _json(await http.post("/v1/chat/completions", json={**body, "model": model}))
    return str(found["choices"][0]["message"]["content"])


async def message(http: httpx.AsyncClient, model: str, body: Body) -> str:
    """Sends POST /v1/messages."""
    found = _json(await http.post("/v1/messages", json={**body, "model": model}))
    return "".join(block["text"] for block in found["content"])


async def message_stream(http: httpx.AsyncClient, model: str, body: Body) -> str:
    """Sends POST /v1/messages, streamed."""
    asked = {**body, "model": model, "stream": True}
    events = [event async for event in _events(http, "/v1/messages", asked)]
    return "".join(event["delta"].get("text", "") for event in events if "delta" in event)


def openai_batch(url: str, model: str, bodies: Sequence[Body]) -> list[str]:
    """Runs a file of requests as OpenAI's batch; returns texts in order."""
    endpoint = "/v1/chat/completions"
    lines = (
        {"custom_id": str(n), "method": "POST", "url": endpoint, "body": {**body, "model": model}}
        for n, body in enumerate(bodies)
    )
    file = "\n".join(map(json.dumps, lines)).encode()
    with httpx.Client(base_url=f"{url}/v1", timeout=_TIMEOUT_S) as http:
        sent = _json(http.post("/files", files={"file": file}, data={"purpose": "batch"}))
        asked = {"input_file_id": sent["id"], "endpoint": endpoint, "completion_window": "24h"}
        batch = _json(http.post("/batches", json=asked))
        batch = _wait(http, f"/batches/{batch['id']}", "status", ("completed", "failed", "expired"))
        if "output_file_id" not in batch:
            raise BenchError(f"the batch ended as {batch}")
        found = http.get(f"/files/{batch['output_file_id']}/content").text
    return _in_order(
        (line["custom_id"], line["response"]["body"]["choices"][0]["message"]["content"])
        for line in map(orjson.loads, found.splitlines())
    )


def message_batch(url: str, model: str, bodies: Sequence[Body]) -> list[str]:
    """Runs Anthropic's Message Batch; returns texts in order."""
    requests = [
        {"custom_id": str(n), "params": {**body, "model": model}} for n, body in enumerate(bodies)
    ]
    with httpx.Client(base_url=f"{url}/v1/messages", timeout=_TIMEOUT_S) as http:
        batch = _json(http.post("/batches", json={"requests": requests}))
        path = f"/batches/{batch['id']}"
        _wait(http, path, "processing_status", ("ended",))
        found = http.get(f"{path}/results").text
    return _in_order(
        (line["custom_id"], line["result"]["message"]["content"][0]["text"])
        for line in map(orjson.loads, found.splitlines())
    )


async def _events(http: httpx.AsyncClient, path: str, body: Any) -> AsyncIterator[dict[str, Any]]:
    """Yields the data of a stream's events. Raises BenchError for an error among them."""
    async with http.stream("POST", path, json=body) as response:
        if response.status_code != 200:
            raise BenchError(f"{path} answered {(await response.aread()).decode()}")
        async for line in response.aiter_lines():
            if line.startswith(_DATA) and not line.endswith(_DONE):
                event = orjson.loads(line.removeprefix(_DATA))
                if "error" in event or "status" in event:
                    raise BenchError(f"a stream of {path} broke off: {event}")
                yield event


def _in_order(found: Any) -> list[str]:
    return [text for _, text in sorted(found, key=lambda pair: int(pair[0]))]


def _wait(http: httpx.Client, path: str, state: str, ends: Sequence[str]) -> dict[str, Any]:
    deadline_s = clock.monotonic() + _TIMEOUT_S
    while (found := _json(http.get(path)))[state] not in ends:
        if clock.monotonic() > deadline_s:
            raise BenchError(f"{path} has not ended within {_TIMEOUT_S:g} s: {found}")
        clock.sleep(_POLL_S)
    return found


def _json(response: httpx.Response) -> dict[str, Any]:
    if response.status_code not in (200, 202):
        raise BenchError(f"{response.url} answered {response.status_code}: {response.text}")
    found: dict[str, Any] = response.json()
    return found
