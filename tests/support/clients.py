"""Clients of a platform, what they do again and again, and the events that they read."""

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import httpx

from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at

T = TypeVar("T")


def bearer(key: str, **more: str) -> dict[str, str]:
    """Headers of a request with a key; empty: without one."""
    return {"Authorization": f"Bearer {key}", **more} if key else more


def http_of(platform: Platform, tenant: str, **more: Any) -> httpx.Client:
    """A client of a tenant, by a new key. more: of the key."""
    key, _ = make_key_at(platform.settings.database_url, tenant, **more)
    return httpx.Client(base_url=platform.url, headers=bearer(key))


def infer(http: httpx.Client, model: str, value: Any, **more: Any) -> httpx.Response:
    """Answer to a call. more: fields of its body."""
    return http.post("/infer", json={"model": model, "input": value, **more})


def request_bytes(path: str, headers: dict[str, str], body: bytes, more: int = 0) -> bytes:
    """A request on the wire; `more` bytes of its body are still to come."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body) + more}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def send(platform: Platform, raw: bytes) -> socket.socket:
    """A connection that has sent these bytes; closing it is how a client leaves."""
    connection = socket.create_connection((platform.settings.host, platform.settings.port))
    connection.sendall(raw)
    return connection


def chat(words: str, **fields: Any) -> dict[str, Any]:
    """The input of a model that generates: a chat of one message."""
    return {"messages": [{"role": "user", "content": words}], **fields}


@contextmanager
def repeated(call: Callable[[int], T], callers: int, pause_s: float = 0.0) -> Iterator[list[T]]:
    """Calls a function again and again until the block ends, on a thread for each caller, with the
    caller's number. Yields what it has returned so far; raises what it has raised at the end."""
    ended, found = threading.Event(), list[T]()

    def go_on(caller: int) -> None:
        while not ended.is_set():
            found.append(call(caller))
            ended.wait(pause_s)

    with ThreadPoolExecutor(callers) as pool:
        calling = [pool.submit(go_on, caller) for caller in range(callers)]
        try:
            yield found
        finally:
            ended.set()
    for one in calling:
        one.result()


class Event(NamedTuple):
    id: str
    name: str
    data: Any  #: None: [DONE]


def events(lines: Iterable[str]) -> Iterator[Event]:
    """Yields the events of a stream as its lines come."""
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name:
            found[name] = value
        elif "data" in found:
            raw = found["data"]
            data = None if raw == "[DONE]" else json.loads(raw)
            yield Event(found.get("id", ""), found.get("event", ""), data)
            found = {}
