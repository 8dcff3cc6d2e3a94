"""Inputs behind addresses, from real servers on loopback: within a size and a time, and only from
where a tenant may read."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from jobs.intake.validation import is_address
from jobs.settings import Settings
from tests.support.cases import each
from tests.support.servers.receiver import Receiver, Reply, receiving
from tests.support.stores.s3 import BUCKET, S3, serving
from tests.support.wait import PATIENCE_S
from workers.engines.protocol import InvalidInput, RateLimited, Transient
from workers.http_client.addresses import resolve
from workers.preparation.fetch import UNREACHABLE, Fetcher

TENANT = "alice"


@pytest.fixture(scope="module")
def s3() -> Iterator[S3]:
    with serving() as running:
        yield running


@pytest.fixture
def server() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def reach(settings: Settings) -> Settings:
    return settings.evolve(fetch_allow="127.0.0.1", fetch_max_mb=1, fetch_timeout_s=60.0)


def fetched(settings: Settings, *urls: str) -> list[bytes | Exception]:
    return Fetcher(settings).fetch([(url, TENANT) for url in urls])


def refused(found: bytes | Exception, kind: type[Exception] = InvalidInput) -> str:
    assert type(found) is kind, found
    return str(found)


def test_addresses_are_told_from_other_inputs() -> None:
    assert is_address("https://example.com/cat.jpg")
    assert is_address("s3://bucket/key")
    assert not is_address("a text about https://example.com")
    assert not is_address({"url": "https://example.com"})


def test_bytes_come_from_each_address_in_order(reach: Settings, server: Receiver) -> None:
    server.reply = lambda request: Reply(200, body=request.path.encode())
    urls = [f"http://127.0.0.1:{server.port}/{n}" for n in range(40)]
    assert fetched(reach, *urls) == [f"/{n}".encode() for n in range(40)]


def test_a_private_host_is_not_reached_and_nothing_is_told_of_its_name(
    settings: Settings, server: Receiver
) -> None:
    [found] = fetched(settings, f"https://127.0.0.1:{server.port}/")
    assert "MILLRACE_FETCH_ALLOW" in refused(found)
    assert not server.received
    for addresses in ([(2, ("10.0.0.1", 443))], []):
        fetcher = Fetcher(settings, resolver=lambda host, port, its=addresses: its)
        [found] = fetcher.fetch([("https://intranet.example/", TENANT)])
        assert refused(found, Transient) == UNREACHABLE


def test_a_status_says_whether_another_try_may_succeed(reach: Settings, server: Receiver) -> None:
    wrong, passing = (301, 400, 401, 404, 410), (408, 425, 429, 500, 503)
    for status, case in each([*wrong, *passing]):
        server.reply = lambda request, code=status: Reply(code, {"location": "http://10.0.0.1/"})
        server.received.clear()
        with case:
            [found] = fetched(reach, f"http://127.0.0.1:{server.port}/")
            said = refused(found, InvalidInput if status in wrong else Transient)
            assert f"answered {status}" in said or status in passing
            assert len(server.received) == 1 or status in passing  # no redirect is followed
    server.reply = lambda request: Reply(429, {"retry-after": "7"})
    [found] = fetched(reach, f"http://127.0.0.1:{server.port}/")
    assert isinstance(found, RateLimited)
    assert found.retry_after_s == 7.0


def test_what_is_too_large_is_not_read_to_its_end(reach: Settings, server: Receiver) -> None:
    server.reply = lambda request: Reply(200, body=bytes((1 << 20) + 1))
    [found] = fetched(reach, f"http://127.0.0.1:{server.port}/")
    assert "1 MiB" in refused(found)


def test_a_server_that_says_nothing_is_left(reach: Settings, server: Receiver) -> None:
    done = threading.Event()

    def silent(request: object) -> Reply:
        done.wait(PATIENCE_S)
        return Reply(200)

    server.reply = silent
    try:
        [found] = fetched(reach.evolve(fetch_timeout_s=0.2), f"http://127.0.0.1:{server.port}/")
        assert "0.2 s" in refused(found, Transient)
    finally:
        done.set()


def test_addresses_that_are_wrong_are_named(reach: Settings) -> None:
    urls = (
        "https://", "https://user:secret@example.com/", "https://exa mple.com/", "s3://B/x",
        "s3://bucket/../x", "http://example.com/",
    )  # fmt: skip
    for url, found in zip(urls, fetched(reach.evolve(s3_allow="bucket"), *urls), strict=True):
        assert refused(found), url


def test_objects_come_from_where_the_tenant_may_read(reach: Settings, s3: S3) -> None:
    url = s3.put(f"{TENANT}/cat", b"\xff\xd8")
    other = s3.put("bob/cat", b"\xff\xd8")
    ours = reach.evolve(s3_endpoint=s3.endpoint, s3_allow=f"{BUCKET}/{{tenant}}")
    found, foreign, absent = fetched(ours, url, other, f"{url}s")
    assert found == b"\xff\xd8"
    assert "may not reach" in refused(foreign)
    assert "no object" in refused(absent)
    large = s3.put(f"{TENANT}/large", bytes((1 << 20) + 1))
    assert "1 MiB" in refused(fetched(ours, large)[0])
    [forbidden] = fetched(reach.evolve(s3_endpoint=s3.endpoint), url)
    assert "MILLRACE_S3_ALLOW" in refused(forbidden)


def test_an_error_that_nobody_expects_costs_its_address_alone_whose_signature_is_not_logged(
    reach: Settings, server: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "abc"

    def resolver(host: str, port: int) -> list[Any]:
        if host == "broken.example":
            raise RuntimeError(f"{secret} broke this")
        return resolve(host, port)

    server.reply = lambda request: Reply(200, body=b"x")
    broken, away = f"https://broken.example/cat?signature={secret}", "http://127.0.0.1:1/cat?X-Amz-"
    urls = broken, f"{away}Signature={secret}", f"http://127.0.0.1:{server.port}/"
    one, unreachable, other = Fetcher(reach, resolver).fetch([(url, TENANT) for url in urls])
    assert "RuntimeError" in refused(one, Transient)
    refused(unreachable, Transient)
    assert other == b"x"
    assert "https://broken.example/cat: RuntimeError" in caplog.text
    assert "http://127.0.0.1:1/cat:" in caplog.text
    assert secret not in caplog.text


def test_fewer_are_fetched_together_where_they_are_large(reach: Settings, server: Receiver) -> None:
    fetcher = Fetcher(reach.evolve(fetch_max_mb=32))
    small, large = bytes(1000), bytes(16 << 20)
    server.reply = lambda request: Reply(200, body=large if "large" in request.path else small)
    at = f"http://127.0.0.1:{server.port}"
    fetcher.fetch([(f"{at}/small", TENANT)])
    assert fetcher.at_once == 32
    fetcher.fetch([(f"{at}/large", TENANT)])
    assert fetcher.at_once == 4
