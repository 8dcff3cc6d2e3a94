"""The database and Redis change places as it runs (ops/docs/explanation/failover.md), and calls are
on a Redis Cluster, of which nodes die."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from jobs.calls.keys import Keys
from jobs.store import db
from migrations.run import migrate
from millrace import Client
from ops.bench.chaos.servers.postgres_standby import Standby, url_of_both
from ops.bench.harness.models_files import models_file, sample
from ops.embedded.layout import REDIS_SOCKET
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.redis import EmbeddedRedis
from ops.embedded.servers import EmbeddedServers
from ops.supervisor.platform import Platform
from tests.support.children import frozen, kill, kill_server, until
from tests.support.clients import infer, repeated
from tests.support.jobs import assert_invariants, begun, completed
from tests.support.models.entries import function
from tests.support.pace import pace
from tests.support.platforms import Platforms, no_durability, spec
from tests.support.stores.redis_cluster import RedisCluster
from tests.support.stores.redis_sentinel import WatchedRedis
from tests.support.stores.tcp_forwarder import Forwarder
from tests.support.wait import PATIENCE_S, eventually, slowdown

MODELS = function("paced:steady", name="paced", target_ms=60000, limits={"max_batch": 32})
ITEMS = 2500
TAKEN_S, PROBED_S = 10.0, 2.0  # the first job after a promotion, and each probe
ALL_DONE_S = 40.0
KEY = "a key of the tests, 32 characters or more"

Pair = tuple[EmbeddedPostgres, Standby]


def _tell(what: str, since_s: float) -> None:
    """Figures of ops/docs/explanation/failover.md: `pytest -s` shows them."""
    print(f"{what} after {time.monotonic() - since_s:.2f} s")


@contextmanager
def _running_pair(home: Path, standby_home: Path) -> Iterator[Pair]:
    """A primary whose commits wait for its standby: what was acknowledged is on both."""
    primary = EmbeddedPostgres(home)
    standby = Standby(standby_home, primary)
    with HomeLock(home).held(), no_durability():
        try:
            primary.start()
            standby.start()
            _as_superuser(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'")
            engine = db.connect(url_of_both(primary, standby), pool_size=1)
            migrate(engine)
            engine.dispose()
            yield primary, standby
        finally:
            standby.stop()
            primary.stop()


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    homes = tmp_path_factory.mktemp("primary"), tmp_path_factory.mktemp("standby")
    with _running_pair(*homes) as running:
        yield running


def _as_superuser(server: EmbeddedPostgres, *statements: str) -> None:
    with psycopg.connect(db.plain_url(server.url), autocommit=True) as superuser:
        for statement in (*statements, "SELECT pg_reload_conf()"):
            superuser.execute(statement)


def _promote(standby: Standby) -> None:
    """Does what a failover manager does; the new primary has nobody to wait for."""
    nobody = "ALTER SYSTEM SET synchronous_standby_names = ''"
    _as_superuser(standby, "SELECT pg_promote()", nobody)


def test_the_url_of_several_hosts_leads_to_the_one_that_takes_writes(pair: Pair) -> None:
    for url in (url_of_both(*pair), url_of_both(*reversed(pair))):
        engine = db.connect(url, pool_size=1, role=db.WORKER)
        with engine.begin() as tx:
            assert tx.exec_driver_sql("SELECT pg_is_in_recovery()").scalar() is False
        engine.dispose()
        with psycopg.connect(db.plain_url(url)) as heard:  # as the keeper listens
            assert heard.info.parameter_status("in_hot_standby") == "off"


def test_a_job_outlives_the_primary_that_took_it(pair: Pair, platforms: Platforms) -> None:
    primary, standby = pair
    found = {"database_url": url_of_both(*pair), "secret_key": KEY}
    with (
        platforms.running(spec(MODELS), **found) as platform,
        closing(Client(platform.url)) as client,
    ):
        job = client.jobs.submit("paced", [str(n) for n in range(ITEMS)]).id
        eventually(lambda: begun(client, job))
        assert client.jobs.get(job)["state"] == "running"
        kill_server(primary)
        since_s = time.monotonic()
        _promote(standby)
        client.jobs.submit("paced", ["after"])  # goes on until it is taken
        _tell("taken again", since_s)
        assert client.jobs.wait(job)["counts"]["succeeded"] == ITEMS
        _tell("ended", since_s)
        assert list(client.jobs.results(job).outputs()) == [str(n) for n in range(ITEMS)]


@pytest.mark.nightly
def test_jobs_are_taken_and_done_while_the_old_primary_is_frozen(
    platforms: Platforms, tmp_path_factory: pytest.TempPathFactory
) -> None:
    homes = tmp_path_factory.mktemp("frozen"), tmp_path_factory.mktemp("promoted")
    with ExitStack() as stack:
        primary, standby = stack.enter_context(_running_pair(*homes))
        found = {"database_url": url_of_both(primary, standby), "secret_key": KEY}
        platform = stack.enter_context(platforms.running(spec(MODELS, workers=2), **found))
        client = stack.enter_context(closing(Client(platform.url)))
        http = stack.enter_context(httpx.Client(base_url=platform.url, timeout=PATIENCE_S))
        with (
            repeated(lambda _: _timed(lambda: http.get("/readyz")), 1, 0.1) as probes,
            repeated(lambda _: _taken(http), 4) as taken,
        ):
            eventually(lambda: sum(map(bool, taken)) > 20)
            stack.enter_context(frozen(primary))
            _promote(standby)
            since_s, before = time.monotonic(), len(taken)
            first_s = _timed(lambda: eventually(lambda: _taken(http)))
            _tell("taken again", since_s)
            eventually(lambda: sum(map(bool, taken[before:])) > 20)
        jobs = [job for job in taken if job]
        eventually(lambda: completed(client, *jobs), ALL_DONE_S)
        _tell("all ended", since_s)
        print(f"{len(jobs)} jobs; a probe took {max(probes):.2f} s at most")
        assert first_s < TAKEN_S * slowdown()
        assert max(probes) < PROBED_S * slowdown()
        assert_invariants(platform)


def _taken(http: httpx.Client) -> str | None:
    answer = http.post("/jobs", json={"model": "paced", "items": ["a", "b"]})
    return str(answer.json()["id"]) if answer.status_code == 202 else None


def _timed(act: Callable[[], object]) -> float:
    """Returns the seconds that it took."""
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


@contextmanager
def _at_one_address(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    """A Redis behind a proxy, and the way to lead its address to another one, which is empty."""
    with ExitStack() as stack:
        first, second = EmbeddedRedis(folder / "first"), EmbeddedRedis(folder / "second")
        for server in (first, second):
            server.start()
            stack.callback(server.stop)
        address = stack.enter_context(closing(Forwarder(first.layout.run / REDIS_SOCKET)))

        def move() -> None:
            first.stop()
            address.lead_to(second.layout.run / REDIS_SOCKET)

        yield f"redis://127.0.0.1:{address.port}/0", move


@contextmanager
def _behind_sentinels(folder: Path) -> Iterator[tuple[str, Callable[[], None]]]:
    with WatchedRedis(folder) as watched:
        yield watched.url, watched.fail_over


@pytest.mark.parametrize(
    "redis_that_moves",
    [_at_one_address, pytest.param(_behind_sentinels, marks=pytest.mark.nightly)],
)
def test_calls_and_jobs_go_on_when_redis_moves(
    platforms: Platforms, tmp_path: Path, redis_that_moves: Any
) -> None:
    with ExitStack() as stack:
        url, move = stack.enter_context(redis_that_moves(tmp_path))
        platform = stack.enter_context(platforms.running(spec(MODELS), redis_url=url))
        client = stack.enter_context(closing(Client(platform.url)))
        http = stack.enter_context(httpx.Client(base_url=platform.url))
        assert infer(http, "paced", "now").is_success
        job = client.jobs.submit("paced", ["x"] * ITEMS).id
        eventually(lambda: begun(client, job))
        move()
        since_s = time.monotonic()
        eventually(lambda: infer(http, "paced", "now").is_success)
        _tell("answered again", since_s)
        assert client.jobs.wait(job)["counts"]["succeeded"] == ITEMS


COPIES = 6  # of one model: some on each node
ON_ALL_NODES = models_file(*(sample("echo", name=f"echo-{n}") for n in range(COPIES)))


@pytest.fixture(scope="module")
def platform(
    platforms: Platforms, redis_nodes: RedisCluster, servers: EmbeddedServers
) -> Iterator[Platform]:
    address = {"redis_url": redis_nodes.url, "broker_url": servers.redis.url}
    with platforms.running(spec(ON_ALL_NODES, lease_s=3.0 * pace()), **address) as running:
        yield running


@pytest.fixture(scope="module")
def ports(redis_nodes: RedisCluster) -> list[int]:
    return [redis_nodes.port_of(Keys(f"echo-{n}@1")("calls")) for n in range(COPIES)]


@pytest.mark.nightly
def test_calls_and_jobs_of_models_on_all_nodes(client: Client, ports: list[int]) -> None:
    assert len(set(ports)) > 1
    for n in range(COPIES):
        assert client.infer(f"echo-{n}", f"input {n}")["output"] == f"input {n}"
    job = client.jobs.submit("echo-1", ["a", "b"]).id
    assert client.jobs.wait(job)["counts"]["succeeded"] == 2


@pytest.mark.nightly
def test_a_call_is_recorded_and_its_key_is_kept(http: httpx.Client) -> None:
    asked = {"model": "echo-2", "input": "once"}
    headers = {"Idempotency-Key": '"cluster"'}
    first, again = (http.post("/infer", json=asked, headers=headers) for _ in range(2))
    assert (first.status_code, again.content) == (200, first.content)
    eventually(lambda: http.get(f"/calls/{first.json()['id']}").is_success)


@pytest.mark.nightly
def test_calls_of_a_dead_worker_run_again(platform: Platform, http: httpx.Client) -> None:
    kill(platform)
    until(platform, lambda: answered(http) == {*range(COPIES)})


@pytest.mark.nightly
def test_a_node_that_dies_takes_its_own_models_alone(
    platform: Platform, client: Client, http: Any, redis_nodes: RedisCluster, ports: list[int]
) -> None:
    until(platform, lambda: answered(http) == {*range(COPIES)})
    lost = ports[0]
    redis_nodes.kill(lost)
    try:
        others = {n for n in range(COPIES) if ports[n] != lost}
        eventually(lambda: answered(http) == others)
        job = client.jobs.submit("echo-0", ["a"]).id
        assert client.jobs.wait(job)["counts"]["succeeded"] == 1
    finally:
        redis_nodes.start(lost)
    redis_nodes.wait()
    until(platform, lambda: answered(http) == {*range(COPIES)})


def answered(http: httpx.Client) -> set[int]:
    return {n for n in range(COPIES) if infer(http, f"echo-{n}", "x", timeout_ms=2000).is_success}
