"""HTTP server of an api process: uvicorn on the configured address, with bounded connections."""

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import FrameType

import uvicorn
from fastapi import FastAPI

from api import background
from api.app import create_app
from api.auth import bind_check
from api.http import security
from api.http.connections import accepting, shared_port
from api.http.connections.connection import bounded_protocol
from api.http.connections.request_turns import Policy, RequestTurns
from api.middleware import cors
from api.middleware.fast_path import FastPath, call_route
from jobs.processes import open_files
from jobs.settings import Settings
from jobs.store import db
from jobs.telemetry.metrics import exposition, record

_SWITCH_INTERVAL_S = 0.0005
_SHUTDOWN_S = 10
_LINGER_S = 1.0  # where other apis share the port
_HAND_OVER_S = 5  # after which streams that haven't ended are left to other apis
_KEEP_ALIVE_S = 75
_TICK, _TICK_S = 0, 1.0  # uvicorn renews the Date header at its ticks 0, 10, …: once a second
_NOT_STARTED = 3  # exit status, as uvicorn.run's


class _Server(uvicorn.Server):
    """Ends event streams, which are endless, before it waits for requests in flight."""

    def __init__(self, config: uvicorn.Config, app: FastAPI) -> None:
        super().__init__(config)
        self._app = app
        self._exit = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            for server in list(self.servers):
                self.servers += await accepting.listen_more(
                    server, self._connection, self.config.ssl
                )

    @property
    def _connection(self) -> Callable[[], asyncio.Protocol]:
        """Makes the protocol of a new connection, as uvicorn does."""
        protocol: Callable[..., asyncio.Protocol] = self.config.http_protocol_class
        return partial(
            protocol,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )

    async def main_loop(self) -> None:
        """Waits for a signal; uvicorn's own loop looks for one ten times a second."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(_TICK):
            with suppress(TimeoutError):
                async with asyncio.timeout(_TICK_S):
                    await self._exit.wait()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles a signal."""
        super().handle_exit(sig, frame)
        if self._loop:
            self._loop.call_soon_threadsafe(self._exit.set)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.context.job_watcher.close()
        self._app.state.live_updates.close()
        gateway = self._app.state.context.gateway
        asyncio.get_running_loop().call_later(_HAND_OVER_S, gateway.hand_over)
        await self._stop_listening(sockets or [])
        await super().shutdown(sockets)

    async def _stop_listening(self, sockets: list[socket.socket]) -> None:
        """Closes sockets that others share, and takes what waits there: the kernel has assigned it
        to this process, and would reset it."""
        waiting = [one for sock in sockets for one in shared_port.accept_all(sock)]
        for server in self.servers:
            server.close()  # at once: between the two lies no turn of the loop
        loop, ssl = asyncio.get_running_loop(), self.config.ssl
        new = self._connection
        taken = (loop.connect_accepted_socket(new, one, ssl=ssl) for one in waiting)
        with suppress(TimeoutError):  # of a client that doesn't go on with its handshake
            async with asyncio.timeout(_LINGER_S):
                await asyncio.gather(*taken, return_exceptions=True)


def serve(settings: Settings) -> None:
    """Serves until SIGTERM or SIGINT, and finishes requests in flight. Raises SettingsError where
    it must not, or can't, bind to that address, or its database is behind a pooler that loses
    sessions."""
    db.check_sessions(settings.database_url)
    _check_bind(settings)
    threading.excepthook = background.thread_died
    open_files.raise_limit()
    record.start("api", settings.metrics)
    exposition.serve(settings)
    # A thread that returns from the database waits this long for the GIL, not ten times as long.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    # uvicorn raises the signal that ended it once more when it is done: that is no failure.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    app, shared = create_app(settings), settings.share_port
    turns = RequestTurns(_policy(app))
    app.state.request_wait_s = turns.longest_wait_s
    http = bounded_protocol(settings.slow_client_s, turns, _LINGER_S if shared else 0.0)
    config = uvicorn.Config(
        cors.allowing(FastPath(app), settings.cors_origins),
        host=settings.host,
        port=settings.port,
        loop="uvloop",
        http=http,  # type: ignore[arg-type]
        ws="none",
        backlog=accepting.BACKLOG,
        log_config=None,  # jobs/telemetry/logs.py configures logging
        headers=security.headers(settings),
        **security.tls(settings),
        access_log=False,
        proxy_headers=False,  # no response depends on a proxy in front
        log_level="warning",
        timeout_graceful_shutdown=_SHUTDOWN_S,
        timeout_keep_alive=_KEEP_ALIVE_S,
    )
    server = _Server(config, app)
    server.run(shared_port.bind(settings.host, settings.port) if shared else None)
    if not server.started:
        sys.exit(_NOT_STARTED)


def _policy(app: FastAPI) -> Policy:
    """Decides which requests wait for others, and how long; the context is made at the start."""

    def patience_s() -> float:
        patience: float = app.state.context.gateway.model_statuses.patience_s
        return patience

    def tenant_of(header: bytes, value: bytes) -> str:
        tenant: str = app.state.context.authenticator.known_tenant(header, value)
        return tenant

    return Policy(patience_s, tenant_of, call_route)


def _check_bind(settings: Settings) -> None:
    database = db.connect(settings.database_url, pool_size=1, role=db.API)
    try:
        bind_check.check(settings, database)
    finally:
        database.dispose()
