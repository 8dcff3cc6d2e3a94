"""Certificates, and a proxy that ends TLS before a server that knows none."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509

from tests.support import signing
from tests.support.wait import PATIENCE_S

_PG_SSL_REQUEST = b"\x00\x00\x00\x08\x04\xd2\x16\x2f"
_CHUNK = 65_536


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, as PEM files."""

    cert: Path
    key: Path


class Authority:
    """A CA of its own, which certifies servers on loopback and clients."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._name, self._key = folder, name, signing.make_key()
        self.cert = self._certified(name, self._key, ca=True)

    def pair(self, name: str) -> Pair:
        key = signing.make_key()
        path = signing.write(self._folder / f"{name}.key", signing.private_pem(key))
        path.chmod(0o600)  # libpq takes no other
        return Pair(self._certified(name, key, ca=False), path)

    def _certified(self, name: str, key: signing.Key, *, ca: bool) -> Path:
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
        names, now = x509.SubjectAlternativeName(hosts), datetime.now(UTC)
        made = signing.certificate(
            name, key, self._name, self._key, names, ca=ca, until=now + timedelta(days=1)
        )
        return signing.write(self._folder / f"{name}.pem", signing.certificate_pem(made))


def server_context(pair: Pair, client_ca: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=client_ca)
    context.load_cert_chain(pair.cert, pair.key)
    context.verify_mode = ssl.CERT_REQUIRED if client_ca else ssl.CERT_NONE
    return context


@contextmanager
def tls_proxy(
    socket_path: str, pair: Pair, client_ca: Path | None = None, *, postgres: bool = False
) -> Iterator[int]:
    """The port of loopback where a server behind a Unix socket is reached by TLS: from the first
    byte, or as PostgreSQL does it. With a client_ca, a client needs a certificate of it."""
    context = server_context(pair, client_ca)
    transports: list[asyncio.WriteTransport] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        transports.append(plain := writer.transport)
        try:
            if postgres:
                while await reader.readexactly(8) != _PG_SSL_REQUEST:  # that was for GSS
                    writer.write(b"N")
                writer.write(b"S")
                await writer.start_tls(context)
            inner_reader, inner_writer = await asyncio.open_unix_connection(socket_path)
            transports.append(inner_writer.transport)
            await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
        except (OSError, EOFError):
            plain.abort()  # also where the handshake came to nothing
        writer.close()

    with _on_a_thread(serve, None if postgres else context, transports) as port:
        yield port


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


@contextmanager
def _on_a_thread(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
    context: ssl.SSLContext | None,
    transports: list[asyncio.WriteTransport],
) -> Iterator[int]:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda *_: None)  # clients that are refused are no failure
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)

    async def stop() -> None:
        server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        for transport in transports:
            transport.abort()
        for _ in range(5):  # each says so in a turn of its own
            await asyncio.sleep(0)

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(PATIENCE_S)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(PATIENCE_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
