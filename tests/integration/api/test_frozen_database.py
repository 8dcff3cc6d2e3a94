"""A database that acknowledges every packet and answers none, as one that is frozen or whose disk
hangs."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import psycopg
import pytest
import redis
from sqlalchemy import Engine

from api import app as api
from api.auth import invalidation
from jobs.settings import Settings
from jobs.store import db
from jobs.store.connections import hosts
from jobs.store.connections.bounded import BoundedConnection
from ops.bench.chaos.network.faulty_proxy import FaultyProxy, faulty_proxies, faulty_proxy
from tests.support.pace import pace
from tests.support.servers.api_server import serving
from tests.support.stores.transactions import scalar
from tests.support.wait import PATIENCE_S, eventually, eventually_async

STATEMENT_S = 1.0


def server_of(settings: Settings) -> str:
    where = parse_qs(urlsplit(settings.database_url).query)
    return str(Path(where["host"][0], f".s.PGSQL.{where['port'][0]}"))


@pytest.fixture
def proxy(settings: Settings) -> Iterator[FaultyProxy]:
    with faulty_proxy(server_of(settings)) as made:
        yield made


@pytest.fixture
def proxied(settings: Settings, proxy: FaultyProxy) -> Settings:
    address = urlsplit(settings.database_url)
    query = f"host=127.0.0.1&port={proxy.port}"
    return settings.model_copy(update={"database_url": address._replace(query=query).geturl()})


def test_a_statement_without_an_answer_ends_and_the_next_one_has_another_connection(
    proxied: Settings, proxy: FaultyProxy
) -> None:
    engine = db.connect(proxied.database_url, pool_size=1, statement_timeout_s=STATEMENT_S)
    assert scalar(engine, "SELECT 1") == 1
    proxy.inject("stall")
    with pytest.raises(db.CONNECTION_ERRORS, match="has not answered for 3 s"):
        scalar(engine, "SELECT 1")
    proxy.inject("none")
    assert scalar(engine, "SELECT 1") == 1
    engine.dispose()


def test_a_connection_that_listens_is_given_up(
    proxied: Settings, proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedConnection, "answer_s", STATEMENT_S)
    with db.connect_alone(proxied.database_url) as connection:
        assert db.await_notices(connection, 0.1) == []
        connection.execute(f"LISTEN {db.WORK_CHANNEL}")
        connection.execute(f"NOTIFY {db.WORK_CHANNEL}")
        assert [one.channel for one in db.await_notices(connection, 0.1)] == [db.WORK_CHANNEL]
        proxy.inject("stall")
        with pytest.raises(psycopg.OperationalError, match="has not answered for 1 s"):
            db.await_notices(connection, 0.1)


@pytest.mark.anyio
async def test_an_api_that_listens_for_changed_keys_goes_to_the_host_that_answers(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def avoid(info: psycopg.ConnectionInfo) -> None:
        be_patient()  # a starved second server isn't taken for a silent one
        avoid_host(info)

    def be_patient() -> None:
        monkeypatch.setattr(invalidation, "_ANSWER_S", PATIENCE_S)

    be_patient()
    monkeypatch.setattr(invalidation, "_QUIET_S", 0.1)
    monkeypatch.setitem(db.TCP_OPTIONS, "connect_timeout", PATIENCE_S)
    avoid_host = hosts.avoid
    monkeypatch.setattr(hosts, "avoid", avoid)
    connected: list[str] = []
    server = server_of(settings)
    with faulty_proxies({"first": server, "second": server}) as proxies:
        first, second = proxies.values()
        query = f"port={first.port},{second.port}&target_session_attrs=read-write"
        address = urlsplit(settings.database_url)._replace(
            query="host=127.0.0.1,127.0.0.1&" + query
        )
        listening = asyncio.create_task(invalidation.listen(address.geturl(), connected.append))
        await eventually_async(lambda: len(connected) == 1)
        monkeypatch.setattr(invalidation, "_ANSWER_S", STATEMENT_S)
        first.inject("stall")
        await eventually_async(lambda: len(connected) == 2)
        assert first.connections == 1  # neither to cancel the statement nor to listen again
        assert second.connections == 1
        listening.cancel()
        await asyncio.wait({listening})


def test_a_transaction_without_a_limit_gives_it_back(proxied: Settings) -> None:
    engine = db.connect(proxied.database_url, pool_size=1, statement_timeout_s=STATEMENT_S)
    limits = set[float]()
    for unlimited in (True, False):
        with engine.begin() as tx:
            if unlimited:
                db.disable_statement_timeout(tx)
            limits.add(tx.connection.driver_connection.answer_s)  # type: ignore[union-attr]
    assert limits == {600.0, STATEMENT_S + 2.0}
    engine.dispose()


def test_an_api_answers_probes_and_refuses_jobs_until_the_database_is_back(
    proxied: Settings, proxy: FaultyProxy, redis_client: "redis.Redis", database: Engine,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(api, "_STATEMENT_S", STATEMENT_S)
    job = {"model": "echo", "items": ["a"]}
    with (
        serving(api.create_app(proxied)) as port,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10 * pace()) as client,
    ):
        assert client.get("/readyz").status_code == 200
        assert client.post("/jobs", json=job).status_code == 202
        proxy.inject("stall")
        refused = client.get("/readyz")
        assert refused.status_code == 503
        assert refused.json()["detail"].startswith("the database ")
        assert client.get("/livez").status_code == 200
        assert client.get("/version").status_code == 200
        for probe in (client.get("/health"), client.get("/ping"), client.post("/ping")):
            assert (probe.status_code, probe.json()["code"]) == (503, "unavailable")
        refused = client.post("/jobs", json=job)
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True)
        proxy.inject("none")
        eventually(lambda: client.get("/readyz").status_code == 200)
        assert client.post("/jobs", json=job).status_code == 202
    assert scalar(database, "SELECT count(*) FROM jobs") == 2
