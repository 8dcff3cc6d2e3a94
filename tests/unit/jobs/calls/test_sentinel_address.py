"""Addresses of a Redis behind Sentinels, as each of its clients takes them."""

from typing import Any

import pytest
from kombu import Connection
from redis.asyncio.sentinel import SentinelManagedSSLConnection as AsyncTls
from redis.sentinel import SentinelManagedSSLConnection as Tls

from api.gateway.redis_pipeline import RedisPipeline
from jobs.calls import redis as call_redis
from jobs.calls.clients.sentinel import SentinelAddress
from jobs.settings import Settings, redacted
from tests.support.cases import each
from workers.broker import create_app

FULL = (
    "rediss+sentinel://me:p%40w@a:1,b/calls/3"
    "?sentinel_username=s&sentinel_password=x%2Fy&ssl_ca_certs=/ca.pem"
)


def of_sentinels(sentinels: Any) -> tuple[list[tuple[str, int]], dict[str, Any]]:
    """The Sentinels of a client, and the options by which it asks the first one."""
    options = [one.connection_pool.connection_kwargs for one in sentinels]
    return [(one["host"], one["port"]) for one in options], options[0]


def test_every_client_has_all_parts_of_the_address() -> None:
    client: Any = call_redis.connect(FULL)
    pipe: Any = RedisPipeline(FULL, 5.0)._pool  # noqa: SLF001 - what it would ask
    for (pool, kind), case in each([(client.connection_pool, Tls), (pipe, AsyncTls)]):
        with case:
            hosts, asked = of_sentinels(pool.sentinel_manager.sentinels)
            assert hosts == [("a", 1), ("b", 26379)]
            assert (asked["username"], asked["password"]) == ("s", "x/y")
            assert asked["ssl_ca_certs"] == "/ca.pem"
            options = pool.connection_kwargs
            assert (options["username"], options["password"]) == ("me", "p@w")
            assert (options["db"], options["ssl_ca_certs"]) == (3, "/ca.pem")
            assert (pool.service_name, pool.connection_class) == ("calls", kind)


def test_the_broker_is_the_same_redis() -> None:
    connection: Connection = create_app(Settings(redis_url=FULL)).connection_for_write()
    assert (connection.hostname, connection.port, connection.virtual_host) == ("a", 1, "3")
    assert (connection.userid, connection.password) == ("me", "p@w")
    assert connection.ssl["ssl_ca_certs"] == "/ca.pem"
    assert connection.ssl["ssl_cert_reqs"] is not None
    assert connection.alt[1].startswith("sentinel://me:p%40w@b:26379/3?")
    options = connection.transport_options
    asked = options["sentinel_kwargs"]
    assert options["master_name"] == "calls"
    assert (asked["username"], asked["password"], asked["ssl"]) == ("s", "x/y", True)


def test_what_is_no_such_address_is_refused() -> None:
    for rest, case in each(["a", "a/", "a/calls/b", "a/calls/3/4", "/calls/0", "a,/calls"]):
        with case, pytest.raises(ValueError, match="address of a Redis behind Sentinels is"):
            SentinelAddress.parse(f"redis+sentinel://{rest}")


def test_database_and_port_may_be_left_out() -> None:
    address = SentinelAddress.parse("redis+sentinel://[::1]/calls")
    assert address.options == {"db": 0, "ssl": False}
    assert address.netlocs == ["[::1]:26379"]


def test_no_password_is_shown() -> None:
    shown = redacted(FULL)
    assert "x%2Fy" not in shown
    assert "p%40w" not in shown
    assert shown.startswith("rediss+sentinel://me@a:1,b/calls/3?")
