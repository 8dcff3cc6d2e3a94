"""TCP proxy on the loopback that injects faults between two processes."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Fault = Literal[
    "none",  #: bytes pass
    "reset",  #: connections are accepted and reset at once, and open ones are reset
    "stall",  #: nothing passes, though the peer acknowledges: a frozen server
]
_LOOK_S = 0.02
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: close() sends RST


class FaultyProxy:
    """Proxy to a port of this machine, or to a Unix socket. `inject` may be called from any
    thread."""

    def __init__(self, target: int | str) -> None:
        self._target = target
        self._fault: Fault = "none"
        self._open = set[asyncio.StreamWriter]()
        self.connections = 0  #: that clients have opened
        self._loop = asyncio.new_event_loop()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    def inject(self, fault: Fault) -> None:
        """Makes a fault last until the next call. Returns once it is in force."""
        asyncio.run_coroutine_threadsafe(self._inject(fault), self._loop).result()

    async def _inject(self, fault: Fault) -> None:
        self._fault = fault
        if fault == "reset":
            for writer in list(self._open):
                _reset(writer)

    def run(self, started: threading.Event) -> None:
        """Serves until `stop`."""
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, sock=self._listener)
        )
        started.set()
        self._loop.run_forever()
        server.close()
        for task in (tasks := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    def stop(self) -> None:
        """Makes `run` close all connections and return."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._fault == "reset":
            _reset(to_client)
            return
        try:
            if isinstance(self._target, str):
                server, to_server = await asyncio.open_unix_connection(self._target)
            else:
                server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(to_client)
            return
        self._open |= {to_client, to_server}
        try:
            await asyncio.gather(self._pass_on(client, to_server), self._pass_on(server, to_client))
        finally:
            self._open -= {to_client, to_server}

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                while self._fault == "stall":
                    await asyncio.sleep(_LOOK_S)
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            writer.close()


@contextmanager
def faulty_proxy(target: int | str) -> Iterator[FaultyProxy]:
    """Runs a proxy to this port or Unix socket on a thread."""
    proxy, started = FaultyProxy(target), threading.Event()
    thread = threading.Thread(target=proxy.run, args=(started,), name="proxy", daemon=True)
    thread.start()
    started.wait()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()
