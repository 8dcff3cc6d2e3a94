"""An ASGI application behind uvicorn and our own protocol, on a thread of the test."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from api.http.connections.connection import bounded_protocol
from api.http.connections.request_turns import NO_REFUSALS, RequestTurns
from tests.support.wait import eventually

_SLOW_CLIENT_S = 30.0


@contextmanager
def serving(app: Any, turns: RequestTurns | None = None, **options: Any) -> Iterator[int]:
    """Serves on a loopback port of its own, which it yields. options: those of uvicorn.Config."""
    protocol: Any = bounded_protocol(_SLOW_CLIENT_S, turns or RequestTurns(NO_REFUSALS))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, http=protocol, **options))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            eventually(lambda: server.started)
            yield listening.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()
