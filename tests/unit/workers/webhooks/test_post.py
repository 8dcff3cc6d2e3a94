"""One try against real sockets: what it connects to, what it makes of answers, when it gives up."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from jobs import clock
from jobs.ssrf import AllowList
from tests.support.servers.receiver import Receiver, Reply, receiving
from tests.support.wait import Deadline
from workers.webhooks.post import UNREACHABLE, Attempt, post

CLIENT_TLS = ssl.create_default_context()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def names(*addresses: str, port: int) -> Callable[[str, int], list[tuple[int, tuple[Any, ...]]]]:
    """A resolver that always answers the same, on that port whatever is asked."""
    return lambda host, asked: [(socket.AF_INET, (address, port)) for address in addresses]


def send(url: str, allow: str = "127.0.0.1", **options: Any) -> Attempt:
    given = {"tls": CLIENT_TLS, "timeout_s": 10.0} | options
    return post(url, {"webhook-id": "msg_1"}, b"{}", allow=AllowList.parse(allow), **given)


def test_any_2xx_is_success(receiver: Receiver) -> None:
    for status in (200, 202, 204, 299):
        receiver.reply = lambda _, status=status: Reply(status)  # type: ignore[misc]
        assert send(receiver.url) == Attempt(status)
    assert receiver.received[0].headers["webhook-id"] == "msg_1"
    assert receiver.received[0].headers["host"] == f"127.0.0.1:{receiver.port}"


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 404, 410, 429, 500, 503])
def test_anything_else_is_a_failure_and_nothing_is_followed(
    receiver: Receiver, status: int
) -> None:
    receiver.reply = lambda _: Reply(status, {"Location": "/other", "Retry-After": "7"})
    answer = send(receiver.url)
    assert (answer.status, answer.retry_after_s) == (status, 7.0)
    assert answer.error is not None
    assert answer.error.startswith(f"answered {status}")
    assert [request.path for request in receiver.received] == ["/hook"]


def test_a_name_that_answers_differently_the_second_time_changes_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def rebinding(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
        asked.append(host)
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("resolved again"))
        return [(socket.AF_INET, ("127.0.0.1", port if len(asked) == 1 else 1))]

    answer = send(f"http://hooks.test:{receiver.port}/", "hooks.test", resolver=rebinding)
    assert answer == Attempt(204)
    assert asked == ["hooks.test"]
    assert receiver.received[0].headers["host"] == f"hooks.test:{receiver.port}"


@pytest.mark.parametrize("addresses", [("127.0.0.1",), ("8.8.8.8", "127.0.0.1"), ("10.0.0.1",)])
def test_a_name_with_any_address_that_is_not_public_is_not_connected_to(
    addresses: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("connected"))
    answer = send("https://hooks.test/", resolver=names(*addresses, port=1), allow="other.test")
    assert answer.status is None
    assert answer.error == UNREACHABLE
    assert answer.cause == (
        "no connection: hooks.test has an address that is not public; "
        "MILLRACE_WEBHOOK_ALLOW can allow it"
    )


def test_the_system_s_resolver_is_checked_as_well() -> None:
    assert "not public;" in (send("https://localhost/", allow="").cause or "")


def test_a_tenant_is_not_told_which_internal_names_there_are() -> None:
    def unknown(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    def nowhere(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
        return []

    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refuses
        refused = send(f"http://127.0.0.1:{taken.getsockname()[1]}/")
    resolvers = [unknown, nowhere, names("10.0.0.1", port=1), names("127.0.0.1", port=1)]
    found = [
        refused, *(send("https://hooks.test/", resolver=each, allow="x.test") for each in resolvers)
    ]  # fmt: skip
    assert {replace(attempt, cause=None) for attempt in found} == {Attempt(error=UNREACHABLE)}
    causes = [attempt.cause or "" for attempt in found]  # operators are told
    words = ["Connection refused", "Name or service not known", "no address", *["not public;"] * 2]
    assert [word in cause for word, cause in zip(words, causes, strict=True)] == [True] * 5


def test_the_url_is_checked_again_by_the_allow_list_of_now(receiver: Receiver) -> None:
    assert "must be https" in (send(receiver.url, allow="").error or "")
    assert receiver.received == []


def test_the_next_address_is_tried_when_the_first_refuses(receiver: Receiver) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.2", 0))  # bound, not listening: refuses

        def resolver(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
            refusing, serving = taken.getsockname(), ("127.0.0.1", receiver.port)
            return [(socket.AF_INET, refusing), (socket.AF_INET, serving)]

        assert send("http://hooks.test/", "hooks.test", resolver=resolver) == Attempt(204)


def test_a_resolver_that_hangs_takes_no_longer_than_the_attempt_may() -> None:
    released = threading.Event()

    def hanging(host: str, port: int) -> list[tuple[int, tuple[Any, ...]]]:
        released.wait()
        return []

    slow = {"resolver": hanging, "timeout_s": 0.2}
    answers = [send("http://hooks.test/", "hooks.test", **slow) for _ in range(2)]
    waiting = [thread.name for thread in threading.enumerate() if "_look_up" in thread.name]
    released.set()
    assert [answer.error for answer in answers] == ["no answer within 0.2 s"] * 2
    assert len(waiting) == 1


def test_no_proxy_of_the_environment_is_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
        monkeypatch.setenv(name.upper(), "http://127.0.0.1:1")
    assert send(receiver.url) == Attempt(204)


def test_a_success_stands_whatever_its_body_is(receiver: Receiver) -> None:
    receiver.reply = lambda _: Reply(200, body=b"x" * (8 << 20))
    assert send(receiver.url) == Attempt(200)


def test_what_can_t_be_reached_or_understood_is_a_failure() -> None:
    with serving(b"SSH-2.0-OpenSSH\r\n") as port:
        assert "no HTTP" in (send(f"http://127.0.0.1:{port}/").error or "")
    assert "no connection" in (send(f"http://127.0.0.1:{port}/").error or "")
    long = "https://" + "a" * 70 + ".test/"
    assert send(long).error is not None


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_peer_that_sends_a_byte_now_and_then_gets_no_more_time(first: bytes) -> None:
    limit = Deadline(5)
    with serving(first, drip=b"x: y\r\n") as port:
        answer = send(f"http://127.0.0.1:{port}/", timeout_s=0.5)
    assert answer == Attempt(error="no answer within 0.5 s")
    limit.check("the end of an answer that drips")


class serving:  # noqa: N801
    """Answers each connection with those bytes, then drips until it is closed."""

    def __init__(self, first: bytes, drip: bytes = b"") -> None:
        self._first, self._drip = first, drip
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def _serve(self) -> None:
        try:
            peer, _ = self._listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(self._first)
                while self._drip and not self._over.wait(0.05):
                    peer.sendall(self._drip[:1])
                peer.shutdown(socket.SHUT_WR)
                while peer.recv(1000):  # closed with something unread, it would reset
                    pass
        except OSError:
            pass

    def __enter__(self) -> int:
        self._thread.start()
        port: int = self._listener.getsockname()[1]
        return port

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()


def certificate(folder: Path, name: str) -> Path:
    """A self-signed one for that name, with its key, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(clock.now() - timedelta(days=1))
        .not_valid_after(clock.now() + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / f"{name}.pem"
    plain = serialization.NoEncryption()
    form = serialization.PrivateFormat.PKCS8
    pem = serialization.Encoding.PEM
    path.write_bytes(key.private_bytes(pem, form, plain) + made.public_bytes(pem))
    return path


def test_tls_asks_for_and_verifies_the_name_not_the_address(tmp_path: Path) -> None:
    path = certificate(tmp_path, "hooks.test")
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    server.load_cert_chain(path)
    client.load_verify_locations(path)
    asked: list[str | None] = []
    server.sni_callback = lambda _, name, __: asked.append(name)
    with receiving(server) as receiver:
        there = names("127.0.0.1", port=receiver.port)
        answers = [
            send(f"https://{name}/", "127.0.0.0/8", tls=tls, resolver=there)
            for name, tls in (
                ("hooks.test", client), ("other.test", client), ("hooks.test", CLIENT_TLS),
            )
        ]  # fmt: skip
    assert asked == ["hooks.test", "other.test", "hooks.test"]
    assert answers[0] == Attempt(204)
    assert "TLS: " in (answers[1].error or "")
    assert "other.test" in (answers[1].error or "")
    assert "self-signed" in (answers[2].error or "")
    assert len(receiver.received) == 1
