"""Apis of one machine that share a port, as `millrace up --apis` starts them."""

import http.client
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from api.http.connections import shared_port
from jobs.settings import Settings, SettingsError
from ops.processes.children import Child, Supervisor
from ops.processes.forking import ForkedChild, ForkServer
from ops.processes.ports import free_port
from tests.support.tls import Authority
from tests.support.wait import PATIENCE_S, eventually

_LINGER_S = 1.0  # of an api that ends, for each handshake and request that it was sent


@contextmanager
def sharing(
    settings: Settings, logs: Path, count: int, **changes: Any
) -> Iterator[tuple[int, list[Child]]]:
    """Runs apis that share a port; yields that, and them. Nobody restarts them."""
    shared = settings.evolve(port=free_port(), share_port=True, metrics_port=0, **changes)
    server = ForkServer("api.server")
    children: list[Child] = [
        ForkedChild(server, name, "api", shared.environment(), logs / f"{name}.log")
        for name in (f"api-{n}" for n in range(1, count + 1))
    ]
    supervisor = Supervisor(children)
    supervisor.start()
    try:
        yield shared.port, children
    finally:
        supervisor.stop(grace_s=0)
        server.stop()


@pytest.fixture
def apis(settings: Settings, tmp_path: Path) -> Iterator[tuple[int, list[Child]]]:
    """Port of two apis, and those."""
    with sharing(settings, tmp_path, 2) as started:
        yield started


def answering(port: int) -> int | None:
    """Process that answers to a new connection; None where nobody listens."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)) as client:
        try:
            client.request("GET", "/livez")
        except ConnectionRefusedError:
            return None
        answer = client.getresponse()
        assert answer.status == 200
        ours = client.sock.getsockname()
        answer.read()
        return next(
            found.pid
            for found in psutil.net_connections("tcp4")
            if found.raddr == ours and found.laddr.port == port
        )


def connections(child: Child) -> list[Any]:
    return list(psutil.Process(child.pid).net_connections("tcp4"))


def test_each_gets_connections_and_where_one_is_killed_the_other_gets_all(
    apis: tuple[int, list[Child]],
) -> None:
    port, children = apis
    seen: set[int | None] = set()
    eventually(lambda: seen.add(answering(port)) or {one.pid for one in children} <= seen)
    killed, other = children
    assert killed.process is not None
    killed.process.send_signal(signal.SIGKILL)
    killed.process.wait(PATIENCE_S)
    assert {answering(port) for _ in range(10)} == {other.pid}


def test_requests_that_an_api_has_not_read_when_it_is_to_end_are_answered(
    apis: tuple[int, list[Child]],
) -> None:
    port, [ending, other] = apis
    seen: set[int | None] = set()
    eventually(lambda: seen.add(answering(port)) or {ending.pid, other.pid} <= seen)
    assert ending.process is not None
    with ExitStack() as opened:
        client = partial(http.client.HTTPConnection, "127.0.0.1", port, timeout=PATIENCE_S)
        kept, new = ([opened.enter_context(closing(client())) for _ in range(30)] for _ in range(2))
        for one in kept:
            one.request("GET", "/livez")
            one.getresponse().read()
        assert any(one.laddr.port == port and one.raddr for one in connections(ending))
        ending.process.send_signal(signal.SIGSTOP)
        for one in (*kept, *new):
            one.request("GET", "/livez")
        ending.process.terminate()
        ending.process.send_signal(signal.SIGCONT)
        for one in (*kept, *new):
            answer = one.getresponse()
            assert (answer.status, bool(answer.read())) == (200, True)
    assert ending.process.wait(PATIENCE_S) == 0
    assert answering(port) == other.pid


def begun(connection: socket.socket, trusting: ssl.SSLContext) -> ssl.SSLSocket:
    """Begins a handshake, which goes on once the server answers."""
    connection.setblocking(False)
    begun = trusting.wrap_socket(
        connection, server_hostname="127.0.0.1", do_handshake_on_connect=False
    )
    with suppress(ssl.SSLWantReadError):
        begun.do_handshake()
    begun.settimeout(PATIENCE_S)
    return begun


def test_clients_that_never_end_their_handshake_hold_up_no_end_and_no_other_client(
    settings: Settings, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "ca", "ca")
    pair = authority.pair("api")
    trusting = ssl.create_default_context(cafile=authority.cert)
    own = {"tls_cert": pair.cert, "tls_key": pair.key}

    def answered() -> bool:
        """Ends an api amid handshakes. Returns False where the machine stood still for as long as
        the api waits for each: that tells nothing."""
        with sharing(settings, tmp_path, 1, **own) as (port, [ending]), ExitStack() as opened:

            def connected() -> socket.socket:
                made = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
                return opened.enter_context(made)

            eventually(lambda: any(one.status == psutil.CONN_LISTEN for one in connections(ending)))
            assert ending.process is not None
            ending.process.send_signal(signal.SIGSTOP)
            # Each holds a handshake for a minute: in turn they outlast the test's patience.
            for _ in range(10):
                connected()
            polite = opened.enter_context(begun(connected(), trusting))
            ending.process.terminate()
            since_s = time.monotonic()
            ending.process.send_signal(signal.SIGCONT)
            try:
                polite.do_handshake()
                polite.sendall(b"GET /livez HTTP/1.1\r\nHost: millrace\r\n\r\n")
                answer = polite.recv(100)
            except OSError:
                answer = b""
            in_time = time.monotonic() - since_s < _LINGER_S
            assert ending.process.wait(PATIENCE_S) == 0
            assert answer.startswith(b"HTTP/1.1 200 ") or not (answer or in_time)
            return bool(answer)

    assert any(answered() for _ in range(10))


def test_a_port_that_another_program_listens_on_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=rf"127\.0\.0\.1:{port}.*MILLRACE_SHARE_PORT"):
            shared_port.bind("127.0.0.1", port)
