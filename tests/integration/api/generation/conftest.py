"""An api of this process, and a worker of generating models that does what a test says."""

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from fastapi import FastAPI
from sqlalchemy import Engine

from api.app import create_app
from api.middleware.fast_path import FastPath
from jobs.calls.messages import Call, ChoiceDelta
from jobs.settings import Settings
from tests.support.clients import bearer
from tests.support.generation.generation_worker import FakeGenerationWorker
from tests.support.keys import make_key
from tests.support.models.entries import model
from tests.support.servers.api_server import serving
from tests.support.wait import PATIENCE_S

UPSTREAM = {"task": "chat", "url": "http://127.0.0.1:9/v1", "model": "other"}
MODELS = [
    model("m", "echo_chat"),
    model("idle", "echo_chat"),
    model("up", "openai", **UPSTREAM),
    model("named", "openai", **UPSTREAM, stream=True) + '[[model.adapters]]\nname = "legal"\n',
    model("plain", "echo"),
]


@dataclass
class Stage:
    """An api, and the worker of the model `m`."""

    app: FastAPI
    port: int
    key: str
    worker: FakeGenerationWorker
    redis: "redis.Redis"
    loop: asyncio.AbstractEventLoop  #: of the api

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Holds the api's loop meanwhile, as a signal that stops its process."""
        stands, goes_on = threading.Event(), threading.Event()
        self.loop.call_soon_threadsafe(lambda: (stands.set(), goes_on.wait()))
        stands.wait()
        try:
            yield
        finally:
            goes_on.set()

    @property
    def url(self) -> str:
        """Address of the api."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Credential of a tenant."""
        return bearer(self.key)

    def begin(self) -> Call:
        """Takes a call, and sends its first token."""
        call = self.worker.take()
        self.worker.push(call, ChoiceDelta(0, "one", (1,)))
        return call

    def break_off(self) -> None:
        """Takes a call, which fails after a token."""
        self.worker.fail(self.begin(), "engine_error", "it broke")

    @contextmanager
    def asking(self, path: str, body: Any) -> Iterator[socket.socket]:
        """A connection on which a request was sent."""
        content = json.dumps(body)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {self.key}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as client:
            client.sendall(f"{head}{content}".encode())
            yield client

    def post(self, path: str, body: Any, **headers: str) -> httpx.Response:
        """Sends a request and waits for its whole response."""
        return httpx.post(self.url + path, json=body, headers={**self.headers, **headers})

    def stream(self, path: str, body: Any) -> Any:
        """Sends a request whose response is read while it comes."""
        return httpx.stream("POST", self.url + path, json=body, headers=self.headers)

    @property
    def in_flight(self) -> int:
        """Calls of the api without a result."""
        count: int = self.app.state.context.gateway.in_flight
        return count


@pytest.fixture
def stage(
    settings: Settings, database: Engine, redis_client: "redis.Redis", tmp_path: Path
) -> Iterator[Stage]:
    file = tmp_path / "models.toml"
    file.write_text("".join(MODELS))
    key, _ = make_key(database)
    worker = FakeGenerationWorker(redis_client, "m@1")
    app = create_app(settings.evolve(models=file))
    served, loops = FastPath(app), list[asyncio.AbstractEventLoop]()

    async def noting_its_loop(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            loops.append(asyncio.get_running_loop())
        await served(scope, receive, send)

    with serving(noting_its_loop, lifespan="on") as port:
        yield Stage(app, port, key, worker, redis_client, loops[0])


@contextmanager
def driving(act: Callable[[], object]) -> Iterator["Future[Any]"]:
    """Runs on a thread what the worker does meanwhile; what goes wrong there is raised at the
    end."""
    with ThreadPoolExecutor(1) as pool:
        driven = pool.submit(act)
        yield driven
        driven.result()
