"""One try against real sockets: what it connects to, what it makes of answers, when it gives up;
and when there is another."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jobs.security.ssrf import AllowList
from tests.support.servers.receiver import Receiver, Reply, receiving
from tests.support.tls import Authority, server_context
from tests.support.wait import PATIENCE_S
from workers.webhooks.post import UNREACHABLE, Attempt, post
from workers.webhooks.retry_policy import (
    DELAYS_S,
    JITTER,
    MAX_RETRY_AFTER_S,
    TRIES,
    Verdict,
    verdict,
)

CLIENT_TLS = ssl.create_default_context()
Addresses = list[tuple[int, tuple[Any, ...]]]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def names(*addresses: str, port: int) -> Callable[[str, int], Addresses]:
    """A resolver that always answers the same, on that port whatever is asked."""
    return lambda host, asked: [(socket.AF_INET, (address, port)) for address in addresses]


@pytest.fixture
def refusing() -> Iterator[tuple[str, int]]:
    """An address that is bound, but not listening."""
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.2", 0))
        yield taken.getsockname()


def send(url: str, allow: str = "127.0.0.1", **options: Any) -> Attempt:
    given = {"tls": CLIENT_TLS, "timeout_s": PATIENCE_S} | options
    return post(url, {"webhook-id": "msg_1"}, b"{}", allow=AllowList.parse(allow), **given)


def test_any_2xx_is_success_whatever_its_body_is(receiver: Receiver) -> None:
    for status in (200, 202, 204, 299):
        receiver.reply = lambda _, status=status: Reply(status)
        assert send(receiver.url) == Attempt(status)
    assert receiver.received[0].headers["webhook-id"] == "msg_1"
    assert receiver.received[0].headers["host"] == f"127.0.0.1:{receiver.port}"
    receiver.reply = lambda _: Reply(200, body=b"x" * (8 << 20))
    assert send(receiver.url) == Attempt(200)


@pytest.mark.parametrize("status", [300, 301, 302, 304, 307, 308, 400, 404, 410, 429, 500, 503])
def test_anything_else_is_a_failure_and_nothing_is_followed(
    receiver: Receiver, status: int
) -> None:
    receiver.reply = lambda _: Reply(status, {"Location": "/other", "Retry-After": "7"})
    answer = send(receiver.url)
    assert (answer.status, answer.retry_after_s) == (status, 7.0)
    assert answer.error.startswith(f"answered {status}")
    assert [request.path for request in receiver.received] == ["/hook"]


def test_a_name_that_answers_differently_the_second_time_changes_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def rebinding(host: str, port: int) -> Addresses:
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


def test_the_system_s_resolver_and_the_allow_list_of_now_are_asked(receiver: Receiver) -> None:
    assert "not public;" in (send("https://localhost/", allow="").cause or "")
    assert "must be https" in (send(receiver.url, allow="").error or "")
    assert receiver.received == []


def test_a_tenant_is_not_told_which_internal_names_there_are(refusing: tuple[str, int]) -> None:
    def unknown(host: str, port: int) -> Addresses:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    refused = send(f"http://127.0.0.2:{refusing[1]}/", "127.0.0.2")
    resolvers = [unknown, names(port=1), names("10.0.0.1", port=1), names("127.0.0.1", port=1)]
    unreached = [send("https://hooks.test/", "x.test", resolver=each) for each in resolvers]
    found = [refused, *unreached]
    assert {replace(attempt, cause=None) for attempt in found} == {Attempt(error=UNREACHABLE)}
    causes = [attempt.cause or "" for attempt in found]  # operators are told
    words = ["Connection refused", "Name or service not known", "no address", *["not public;"] * 2]
    assert [word in cause for word, cause in zip(words, causes, strict=True)] == [True] * 5


def test_the_next_address_is_tried_when_the_first_refuses(
    receiver: Receiver, refusing: tuple[str, int]
) -> None:
    both = [(socket.AF_INET, refusing), (socket.AF_INET, ("127.0.0.1", receiver.port))]
    answer = send("http://hooks.test/", "hooks.test", resolver=lambda host, port: both)
    assert answer == Attempt(204)


def test_a_resolver_that_hangs_takes_no_longer_than_the_attempt_may() -> None:
    released = threading.Event()

    def hanging(host: str, port: int) -> Addresses:
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


def test_what_can_t_be_reached_or_understood_is_a_failure(refusing: tuple[str, int]) -> None:
    with serving(b"SSH-2.0-OpenSSH\r\n") as port:
        assert "no HTTP" in (send(f"http://127.0.0.1:{port}/").error or "")
    assert "no connection" in (send(f"http://127.0.0.2:{refusing[1]}/", "127.0.0.2").error or "")
    long = "https://" + "a" * 70 + ".test/"
    assert send(long).error is not None


@pytest.mark.parametrize("first", [b"", b"HTTP/1.1 200 OK\r\n"])
def test_a_peer_that_sends_a_byte_now_and_then_gets_no_more_time(first: bytes) -> None:
    with serving(first, drip=b"x: y\r\n") as port:
        answer = send(f"http://127.0.0.1:{port}/", timeout_s=0.5)  # else it would never return
    assert answer == Attempt(error="no answer within 0.5 s")


@contextmanager
def serving(first: bytes, drip: bytes = b"") -> Iterator[int]:
    """Answers a connection with those bytes, then drips until it is closed; yields its port."""
    over = threading.Event()

    def serve() -> None:
        with suppress(OSError), listener.accept()[0] as peer:
            peer.recv(1000)
            peer.sendall(first)
            while drip and not over.wait(0.05):
                peer.sendall(drip[:1])
            peer.shutdown(socket.SHUT_WR)
            while peer.recv(1000):  # closed with something unread, it would reset
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            over.set()
            listener.shutdown(socket.SHUT_RDWR)  # where nobody has come
            thread.join()


def test_tls_asks_for_and_verifies_the_name_not_the_address(tmp_path: Path) -> None:
    ca = Authority(tmp_path, "ca")
    server, client = server_context(ca.pair("server"), None), ssl.create_default_context()
    client.load_verify_locations(ca.cert)
    asked: list[str | None] = []
    server.sni_callback = lambda _, name, __: asked.append(name)
    with receiving(server) as receiver:
        there = names("127.0.0.1", port=receiver.port)
        tries = (("localhost", client), ("other.test", client), ("localhost", CLIENT_TLS))
        answers = [
            send(f"https://{name}/", "127.0.0.0/8", tls=tls, resolver=there) for name, tls in tries
        ]
    assert asked == ["localhost", "other.test", "localhost"]
    assert answers[0] == Attempt(204)
    assert "TLS: " in (answers[1].error or "")
    assert "other.test" in (answers[1].error or "")
    assert "unable to get local issuer" in (answers[2].error or "")
    assert len(receiver.received) == 1


HOUR_S = 3600.0
NO = Attempt(500, "answered 500")


def waits(answer: Attempt) -> list[float]:
    found = [verdict(answer, tries) for tries in range(1, TRIES)]
    assert {each.state for each in found} == {"pending"}
    return [each.wait_s for each in found]


def test_eight_tries_take_more_than_34_hours_and_do_not_come_back_together() -> None:
    assert TRIES == 8
    assert sum(DELAYS_S) > 34 * HOUR_S
    for _ in range(50):
        for wait_s, delay_s in zip(waits(NO), DELAYS_S, strict=True):
            assert delay_s <= wait_s <= delay_s * (1 + JITTER)
    assert verdict(NO, TRIES) == Verdict("failed")
    assert verdict(NO, TRIES + 1) == Verdict("failed")
    assert len({verdict(NO, 3).wait_s for _ in range(20)}) > 10


def test_a_success_or_410_ends_it_and_retry_after_holds_it_back_but_not_for_ever() -> None:
    assert verdict(Attempt(204), TRIES) == Verdict("delivered")
    assert verdict(Attempt(410, "answered 410"), 1) == Verdict("disabled")
    assert verdict(Attempt(410, "answered 410"), TRIES) == Verdict("disabled")
    assert verdict(Attempt(429, "answered 429", 600.0), 1).wait_s == 600.0
    assert verdict(Attempt(503, "answered 503", 1.0), 2).wait_s >= DELAYS_S[1]
    assert verdict(Attempt(503, "answered 503", 1e12), 1).wait_s == MAX_RETRY_AFTER_S
