"""Clients of a platform, and the server-sent events that they read."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import httpx

from ops.supervisor.platform import Platform
from tests.support.keys import make_key_at


def bearer(key: str, **more: str) -> dict[str, str]:
    """Headers of a request with a key; empty: without one."""
    return {"Authorization": f"Bearer {key}", **more} if key else more


def http_of(platform: Platform, tenant: str, **more: Any) -> httpx.Client:
    """A client of a tenant, by a new key. more: of the key."""
    key, _ = make_key_at(platform.settings.database_url, tenant, **more)
    return httpx.Client(base_url=platform.url, headers=bearer(key))


def chat(words: str, **fields: Any) -> dict[str, Any]:
    """The input of a model that generates: a chat of one message."""
    return {"messages": [{"role": "user", "content": words}], **fields}


class Event(NamedTuple):
    """A server-sent event."""

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
