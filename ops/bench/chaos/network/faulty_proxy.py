"""TCP proxies on the loopback that inject faults between two processes."""

import asyncio
import socket
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Literal

import uvloop

Fault = Literal[
    "none",  #: bytes pass
    "reset",  #: connections are accepted and reset at once, and open ones are reset
    "stall",  #: nothing passes, though the peer acknowledges: a frozen server
    "stall_answers",  #: requests pass, answers don't
    "delay",  #: bytes pass late
    "delay_requests",  #: requests pass later still, answers at once
    "half_close",  #: the clients of open connections are told that no more answers come
    "cut",  #: connections break off in the middle of what is sent next
]
Target = int | str
"""Port of this machine, or path of a Unix socket."""

_LOOK_S = 0.02
_DELAY_S, _REQUEST_DELAY_S = 0.1, 0.2
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER of no time: close() sends RST


class FaultyProxy:
    """Proxy on a port of its own. `inject` may be called from any thread but that of its loop.

    connections: that clients have opened; hit: connections and pieces that a fault has struck;
    renamed: what is replaced in what passes, by words of the same length."""

    def __init__(self, target: Target, loop: asyncio.AbstractEventLoop) -> None:
        self._target, self._loop = target, loop
        self._fault: Fault = "none"
        self._open = dict[asyncio.StreamWriter, bool]()  # whether it writes to a client
        self.connections = self.hit = 0
        self.renamed: Mapping[bytes, bytes] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]

    @property
    def in_use(self) -> bool:
        """True while a connection is open."""
        return bool(self._open)

    async def serve(self) -> asyncio.Server:
        """Starts to accept connections."""
        return await asyncio.start_server(self._serve, sock=self._listener)

    def inject(self, fault: Fault) -> None:
        """Makes a fault last until the next call. Returns once it is in force."""
        asyncio.run_coroutine_threadsafe(self._inject(fault), self._loop).result()

    async def _inject(self, fault: Fault) -> None:
        self._fault = fault
        for writer, is_client in list(self._open.items()):
            if fault == "reset":
                self._reset(writer)
            elif fault == "half_close" and is_client:
                self.hit += 1
                with suppress(OSError):
                    writer.write_eof()

    async def _serve(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        self.connections += 1
        if self._fault == "reset":
            self._reset(to_client)
            return
        try:
            if isinstance(self._target, str):
                server, to_server = await asyncio.open_unix_connection(self._target)
            else:
                server, to_server = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            _reset(to_client)
            return
        self._open |= {to_client: True, to_server: False}
        try:
            await asyncio.gather(
                self._pass_on(client, to_server, to_client),
                self._pass_on(server, to_client, to_server),
            )
        finally:
            for writer in (to_client, to_server):
                self._open.pop(writer, None)

    async def _pass_on(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        back: asyncio.StreamWriter,
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                for word, other in self.renamed.items():
                    data = data.replace(word, other)
                data = await self._struck(data, writer)
                writer.write(data)
                await writer.drain()
                if self._fault == "cut":
                    self._reset(writer)
                    self._reset(back)
        except (OSError, RuntimeError):  # uvloop writes nothing more where it was half-closed
            pass
        finally:
            writer.close()

    async def _struck(self, data: bytes, writer: asyncio.StreamWriter) -> bytes:
        """Waits as long as a fault holds back what goes there; returns what is left of it."""
        is_answer = self._open.get(writer)
        stalls: set[Fault] = {"stall", "stall_answers"} if is_answer else {"stall"}
        late_s = _DELAY_S if self._fault == "delay" else 0.0
        if self._fault == "delay_requests" and not is_answer:
            late_s = _REQUEST_DELAY_S
        self.hit += self._fault in stalls or late_s > 0
        if late_s:
            await asyncio.sleep(late_s)
        while self._fault in stalls:
            await asyncio.sleep(_LOOK_S)
        return data[: len(data) // 2] if self._fault == "cut" else data

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self.hit += 1
        _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
    writer.transport.abort()


@contextmanager
def faulty_proxies(targets: Mapping[str, Target]) -> Iterator[dict[str, FaultyProxy]]:
    """Runs a proxy to each of these targets, all on one thread; by name."""
    loop = uvloop.new_event_loop()
    proxies = {name: FaultyProxy(target, loop) for name, target in targets.items()}
    started = threading.Event()
    thread = threading.Thread(
        target=_run, args=(loop, list(proxies.values()), started), name="proxies", daemon=True
    )
    thread.start()
    started.wait()
    try:
        yield proxies
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


@contextmanager
def faulty_proxy(target: Target) -> Iterator[FaultyProxy]:
    """Runs one proxy on a thread."""
    with faulty_proxies({"only": target}) as proxies:
        yield proxies["only"]


def _run(
    loop: asyncio.AbstractEventLoop, proxies: list[FaultyProxy], started: threading.Event
) -> None:
    asyncio.set_event_loop(loop)
    servers = [loop.run_until_complete(proxy.serve()) for proxy in proxies]
    started.set()
    loop.run_forever()
    for server in servers:
        server.close()
    for task in (tasks := asyncio.all_tasks(loop)):
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.close()
