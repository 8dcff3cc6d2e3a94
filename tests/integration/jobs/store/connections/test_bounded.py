"""Connections to a server that is frozen, and to one that works on a long statement."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from sqlalchemy import Engine

from jobs.settings import Settings
from jobs.store import db
from jobs.store.connections import bounded, hosts
from ops.bench.chaos.network.faulty_proxy import FaultyProxy, faulty_proxies
from tests.support.cases import each
from tests.support.stores.transactions import scalar, transact
from tests.support.wait import PATIENCE_S, eventually

LONG_S = 600.0  # no test takes so long


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A starved server isn't taken for a silent one, unless a test says how long to wait."""
    wait_for(monkeypatch, PATIENCE_S, PATIENCE_S)
    monkeypatch.setitem(db.TCP_OPTIONS, "connect_timeout", PATIENCE_S)


def wait_for(monkeypatch: pytest.MonkeyPatch, answer_s: float, connection_s: float) -> None:
    monkeypatch.setattr(bounded, "_PATIENCE_S", answer_s)
    monkeypatch.setattr(hosts, "CONNECT_S", connection_s)  # psycopg waits for 2 s at least


@pytest.fixture
def proxies(settings: Settings) -> Iterator[list[FaultyProxy]]:
    """Two ways to one server, as to a primary and what takes its place."""
    where = parse_qs(urlsplit(settings.database_url).query)
    server = str(Path(where["host"][0], f".s.PGSQL.{where['port'][0]}"))
    with faulty_proxies({"first": server, "second": server}) as made:
        yield list(made.values())


def url_of(settings: Settings, *proxies: FaultyProxy) -> str:
    ports = ",".join(str(proxy.port) for proxy in proxies)
    names = ",".join("127.0.0.1" for _ in proxies)
    query = f"host={names}&port={ports}&target_session_attrs=read-write"
    return urlsplit(settings.database_url)._replace(query=query).geturl()


@pytest.fixture
def of_both(settings: Settings, proxies: list[FaultyProxy]) -> Iterator[Engine]:
    engine = db.connect(url_of(settings, *proxies), pool_size=1, statement_timeout_s=LONG_S)
    yield engine
    engine.dispose()


def test_a_statement_ends_long_before_its_limit_where_the_server_takes_no_connection(
    of_both: Engine, proxies: list[FaultyProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = proxies
    with of_both.connect() as connection:
        first.inject("stall")
        wait_for(monkeypatch, 0.1, 2)
        with pytest.raises(db.CONNECTION_ERRORS, match="nor a new connection"):
            connection.exec_driver_sql("SELECT 1")
    wait_for(monkeypatch, PATIENCE_S, PATIENCE_S)
    asked = first.connections
    assert asked > 1  # not by this statement alone
    assert scalar(of_both, "SELECT 1") == 1
    assert (first.connections, second.connections) == (asked, 1)


def test_a_long_statement_goes_on_while_its_server_takes_connections(
    of_both: Engine,
    proxies: list[FaultyProxy],
    database: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wait_for(monkeypatch, 0.1, PATIENCE_S)
    with ThreadPoolExecutor(1) as thread:
        with database.begin() as holder:
            db.lock(holder, "held")
            waiting = thread.submit(transact, of_both, db.lock, "held")
            eventually(lambda: proxies[0].connections > 3)  # looks, while it waits
        waiting.result()
    assert proxies[1].connections == 0


def test_connections_begin_with_the_host_that_took_the_last(
    settings: Settings, proxies: list[FaultyProxy]
) -> None:
    first, second = proxies
    url = url_of(settings, first, second)
    first.inject("reset")
    db.connect_alone(url).close()
    assert (first.connections, second.connections) == (1, 1)
    first.inject("none")
    db.connect_alone(url).close()
    assert (first.connections, second.connections) == (1, 2)
    second.inject("reset")
    db.connect_alone(url).close()
    assert (first.connections, second.connections) == (2, 3)


def test_a_server_that_refuses_connections_is_not_silent(
    of_both: Engine, proxies: list[FaultyProxy], monkeypatch: pytest.MonkeyPatch
) -> None:
    with of_both.connect() as connection:
        wait_for(monkeypatch, 0.1, 2)
        info = db.driver(connection).info
        proxies[0].inject("stall")
        eventually(lambda: not hosts.answers(info))
        proxies[0].inject("reset")
        assert hosts.answers(info)


def test_hosts_without_a_port_are_known_again() -> None:
    info: Any = SimpleNamespace(host="10.0.0.2", port=5432)
    hosts.prefer(info)
    attrs = {"target_session_attrs": "read-write"}
    urls = [
        "postgresql://u@10.0.0.1,10.0.0.2/d",
        "postgresql://u@/d?host=10.0.0.1,10.0.0.2",
        "host=10.0.0.1,10.0.0.2 port=5432,",
    ]
    for url, case in each(urls):
        with case:
            assert hosts.in_turn(url, attrs)["host"] == "10.0.0.2,10.0.0.1"
    odd = "host=10.0.0.1,10.0.0.2,10.0.0.3 port=1,2"
    assert hosts.in_turn(odd, attrs)["host"] == "10.0.0.1,10.0.0.2,10.0.0.3", "psycopg refuses it"
