"""TLS and mutual TLS: clients to the api, and all of us to Redis and PostgreSQL."""

import asyncio
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import httpx
import psycopg
import pytest
import redis
import uvloop
from kombu import Connection
from kombu.exceptions import KombuError

from api.gateway.redis_pipeline import RedisPipeline
from jobs.settings import Settings, SettingsError
from jobs.store import db
from millrace import Client
from ops.embedded.defaults import own_tls_context
from ops.embedded.servers import EmbeddedServers
from ops.supervisor.platform import Platform
from tests.support.platforms import Platforms
from tests.support.tls import Authority, Pair, tls_proxy
from tests.support.wait import PATIENCE_S

Port = AbstractContextManager[int]


class Parties(NamedTuple):
    ours: Authority
    theirs: Authority  #: a CA that nobody here trusts
    server: Pair
    visitor: Pair


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Parties:
    ours, theirs = (Authority(tmp_path_factory.mktemp(name), name) for name in ("ours", "theirs"))
    return Parties(ours, theirs, ours.pair("server"), ours.pair("visitor"))


def redis_url(port: int, ca: Authority, pair: Pair | None = None) -> str:
    files = {"ssl_ca_certs": ca.cert}
    if pair:
        files |= {"ssl_certfile": pair.cert, "ssl_keyfile": pair.key}
    return f"rediss://127.0.0.1:{port}/0?{urlencode(files)}"


def postgres_url(base: str, port: int, ca: Authority, pair: Pair | None = None) -> str:
    """base: of the database, over its socket."""
    user, name = base.split("//")[1].split("@")[0], base.split("?")[0].rpartition("/")[2]
    files = {"sslmode": "verify-full", "sslrootcert": ca.cert}
    if pair:
        files |= {"sslcert": pair.cert, "sslkey": pair.key}
    return f"postgresql+psycopg://{user}@127.0.0.1:{port}/{name}?{urlencode(files)}"


def redis_by_tls(servers: EmbeddedServers, pair: Pair, client_ca: Path | None) -> Port:
    path = servers.redis.url.removeprefix("unix://").partition("?")[0]
    return tls_proxy(path, pair, client_ca)


def postgres_by_tls(servers: EmbeddedServers, pair: Pair, client_ca: Path | None) -> Port:
    layout = servers.postgres.layout
    [path] = [found for found in layout.run.glob(".s.PGSQL.*") if found.suffix != ".lock"]
    return tls_proxy(str(path), pair, client_ca, postgres=True)


@pytest.fixture(scope="module")
def platform(
    platforms: Platforms,
    servers: EmbeddedServers,
    module_database_url: str,
    tls: Parties,
) -> Iterator[Platform]:
    """Mutual TLS everywhere: to the api, to Redis (calls, broker) and to PostgreSQL."""
    ca = tls.ours.cert
    with (
        redis_by_tls(servers, tls.server, ca) as redis_port,
        postgres_by_tls(servers, tls.server, ca) as postgres_port,
        platforms.running(
            database_url=postgres_url(module_database_url, postgres_port, tls.ours, tls.visitor),
            redis_url=redis_url(redis_port, tls.ours, tls.visitor),
            secret_key="a key of the tests, 32 characters or more",
            tls_cert=tls.server.cert,
            tls_key=tls.server.key,
            tls_client_ca=ca,
            ca=ca,
            client_cert=tls.visitor.cert,
            client_key=tls.visitor.key,
        ) as started,
    ):
        yield started


def test_all_goes_by_mutual_tls_and_answers_ask_for_it_from_then_on(platform: Platform) -> None:
    assert platform.url.startswith("https://")
    client = Client(platform.url, verify=own_tls_context(platform.settings))
    assert client.infer("echo", "hello")["output"] == "hello"
    job = client.jobs.submit("echo", [b'"a"\n'] * 2000)["id"]  # stored by COPY
    assert client.jobs.wait(job)["counts"]["succeeded"] == 2000
    client.close()
    answer = httpx.get(f"{platform.url}/livez", verify=own_tls_context(platform.settings))
    assert answer.headers["strict-transport-security"] == "max-age=31536000"


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_the_command_line_presents_its_certificate(platform: Platform, scheme: str) -> None:
    environ = {"MILLRACE_URL": platform.url.replace("https", scheme)} | {
        name: platform.settings.environment()[name]
        for name in ("MILLRACE_CA", "MILLRACE_CLIENT_CERT", "MILLRACE_CLIENT_KEY")
    }
    done = subprocess.run(
        [sys.executable, "-m", "ops", "infer", "--model", "echo", "hello"],
        env={**os.environ, **environ},
        capture_output=True,
    )
    assert (done.returncode, b"hello" in done.stdout) == (0, True), done.stderr


def test_a_client_without_a_certificate_or_with_one_of_another_ca_is_refused(
    platform: Platform, tls: Parties
) -> None:
    stranger = tls.theirs.pair("stranger")
    for pair in ({"cert": None, "key": None}, {"cert": stranger.cert, "key": stranger.key}):
        other = platform.settings.evolve(client_cert=pair["cert"], client_key=pair["key"])
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{platform.url}/livez", verify=own_tls_context(other))


def test_an_api_of_another_ca_is_not_trusted(platform: Platform, tls: Parties) -> None:
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        httpx.get(f"{platform.url}/livez", verify=own_tls_context(Settings(ca=tls.theirs.cert)))


def test_tls_before_1_2_is_refused(platform: Platform) -> None:
    context = own_tls_context(platform.settings)
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.minimum_version = ssl.TLSVersion.TLSv1
    with pytest.warns(DeprecationWarning, match="deprecated"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{platform.url}/livez", verify=context)


def test_up_needs_a_certificate_where_its_api_asks_for_one(tls: Parties) -> None:
    found = Settings(tls_cert=tls.server.cert, tls_key=tls.server.key, tls_client_ca=tls.ours.cert)
    with pytest.raises(SettingsError, match="MILLRACE_CLIENT_CERT"):
        Platform(found)


# -- Redis: the clients of calls, the pipe, the broker

REDIS_WAYS = {
    "client": lambda url: _pinged(url),
    "pipe": lambda url: uvloop.run(_asked_by_pipe(url)),
    "broker": lambda url: _broker_connects(Settings(redis_url=url).broker),
}


def _pinged(url: str) -> None:
    with redis.Redis.from_url(url, socket_timeout=PATIENCE_S) as client:
        client.ping()


async def _asked_by_pipe(url: str) -> None:
    pipe = RedisPipeline(url, timeout_s=PATIENCE_S)
    try:
        assert await pipe.ask("ECHO", b"x" * 1_000_000) == b"x" * 1_000_000
        found = await asyncio.gather(*(pipe.ask("ECHO", str(n)) for n in range(500)))
        assert found == [str(n).encode() for n in range(500)]
    finally:
        await pipe.close()


def _broker_connects(url: str) -> None:
    with Connection(url, transport_options={"socket_timeout": PATIENCE_S}) as connection:
        connection.ensure_connection(max_retries=1, interval_start=0)
        connection.default_channel.client.ping()


@pytest.mark.parametrize("way", REDIS_WAYS.values(), ids=REDIS_WAYS)
def test_redis_is_reached_by_mutual_tls_alone(
    servers: EmbeddedServers, tls: Parties, way: Any
) -> None:
    with redis_by_tls(servers, tls.server, tls.ours.cert) as port:
        way(redis_url(port, tls.ours, tls.visitor))
        with pytest.raises((redis.RedisError, OSError, KombuError)):
            way(redis_url(port, tls.ours))  # without a certificate
    with redis_by_tls(servers, tls.theirs.pair("server"), None) as port:
        way(redis_url(port, tls.theirs))  # the proxy is well
        with pytest.raises(Exception, match="CERTIFICATE_VERIFY_FAILED"):
            way(redis_url(port, tls.ours))


# -- PostgreSQL: SQLAlchemy, and psycopg itself


def test_postgres_is_reached_by_mutual_tls(
    servers: EmbeddedServers, database_url: str, tls: Parties
) -> None:
    with postgres_by_tls(servers, tls.server, tls.ours.cert) as port:
        url = postgres_url(database_url, port, tls.ours, tls.visitor)
        engine = db.connect(url, pool_size=1)
        with engine.begin() as tx:
            assert db.driver(tx).pgconn.ssl_in_use
            db.cursor(tx).execute("CREATE TEMP TABLE copied (x text)")
            with db.cursor(tx).copy("COPY copied FROM STDIN") as copy:
                copy.write(b"x" * 100_000 + b"\n")
        with psycopg.connect(db.plain_url(url), autocommit=True) as listener:
            listener.execute(f"LISTEN {db.WORK_CHANNEL}")
            with engine.begin() as tx:
                db.notify_work(tx)
            assert [found.channel for found in listener.notifies(timeout=PATIENCE_S, stop_after=1)]
        engine.dispose()


def test_a_postgres_of_another_ca_or_without_a_certificate_for_it_is_refused(
    servers: EmbeddedServers, database_url: str, tls: Parties
) -> None:
    with postgres_by_tls(servers, tls.theirs.pair("server"), None) as port:
        psycopg.connect(db.plain_url(postgres_url(database_url, port, tls.theirs))).close()
        with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
            psycopg.connect(db.plain_url(postgres_url(database_url, port, tls.ours)))
    with (
        postgres_by_tls(servers, tls.server, tls.ours.cert) as port,
        pytest.raises(psycopg.OperationalError),
    ):
        psycopg.connect(db.plain_url(postgres_url(database_url, port, tls.ours)))
