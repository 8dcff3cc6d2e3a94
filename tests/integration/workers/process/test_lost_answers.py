"""Commits of a worker that PostgreSQL makes, and whose answers never come."""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
import redis
from sqlalchemy import Connection, Engine, event

from jobs.blobs.payloads import Payloads
from jobs.calls.redis import RedisLanes
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.settings import Settings
from jobs.store import db
from jobs.store.connections import bounded, hosts
from jobs.store.queue import reap, workers
from jobs.usecases.submit import Order, submit
from ops.bench.chaos.network.faulty_proxy import FaultyProxy, faulty_proxy
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.transactions import connected, execute, fetch, scalar, transact
from tests.support.wait import PATIENCE_S
from workers.device.call_puller import CallPuller
from workers.device.model_host import ModelHost
from workers.engines.echo import Echo
from workers.items.sources import InputSources
from workers.process.slice_runner import SliceRunner

MODEL = Model("a", "1", "echo")
Happens = Callable[[Connection], bool]


@pytest.fixture
def lost(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator["LostAnswer"]:
    monkeypatch.setitem(db.TCP_OPTIONS, "connect_timeout", PATIENCE_S)
    address = urlsplit(settings.database_url)
    where = parse_qs(address.query)
    server = str(Path(where["host"][0], f".s.PGSQL.{where['port'][0]}"))
    with faulty_proxy(server) as proxy:
        query = f"host=127.0.0.1&port={proxy.port}"
        with connected(address._replace(query=query).geturl(), db.WORKER) as database:
            yield LostAnswer(database, proxy, monkeypatch)


class LostAnswer:
    """A way to the database that loses the answer to one commit, and is whole from then on."""

    def __init__(self, database: Engine, proxy: FaultyProxy, patch: pytest.MonkeyPatch) -> None:
        self.database, self._proxy, self._patch = database, proxy, patch
        self._due: Happens | None = None
        self._wait_for(PATIENCE_S, PATIENCE_S)
        event.listen(database, "commit", self._commits)
        event.listen(database, "handle_error", self._over)

    def of_first(self, due: Happens) -> None:
        """Loses the answer to the first commit of which this is true, in its transaction."""
        self._due = due

    @property
    def happened(self) -> bool:
        return self._due is None

    def _commits(self, connection: Connection) -> None:
        if self._due and self._due(connection):
            self._due = None
            self._proxy.inject("stall_answers")
            self._wait_for(0.1, 2)  # the least that psycopg waits

    def _over(self, _: object) -> None:
        self._proxy.inject("none")
        self._wait_for(PATIENCE_S, PATIENCE_S)

    def _wait_for(self, answer_s: float, connection_s: float) -> None:
        """A starved server isn't taken for a silent one while answers come."""
        self._patch.setattr(bounded, "_PATIENCE_S", answer_s)
        self._patch.setattr(hosts, "CONNECT_S", connection_s)


def exists(condition: str) -> Happens:
    return lambda tx: bool(
        tx.connection.cursor().execute(f"SELECT 1 FROM slices WHERE {condition}").fetchone()
    )


class Worker:
    """One incarnation with a device, whose heartbeats the test makes."""

    def __init__(self, settings: Settings, database: Engine, client: "redis.Redis") -> None:
        owner = transact(database, workers.register, "w", "default", "cpu", [MODEL.key])
        puller = CallPuller(RedisLanes(client, MODEL.key), str(owner), 60)
        self.host = ModelHost(MODEL, Echo(), puller, lambda *_: 0)
        payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)
        self.slices = SliceRunner(
            database, {MODEL.key: self.host}, owner, 60, InputSources(payloads)
        )
        self.host.start()


@pytest.fixture
def worker(settings: Settings, lost: LostAnswer, redis_client: "redis.Redis") -> Iterator[Worker]:
    made = Worker(settings, lost.database, redis_client)
    yield made
    made.host.stop()


def post(database: Engine) -> None:
    submit(database, Registry([MODEL]), "t", Order("a"), array=["x", "y"])


def assert_done_once(database: Engine) -> None:
    assert scalar(database, "SELECT state FROM jobs") == "completed"
    assert fetch(database, "SELECT seq, outcome, attempts FROM results ORDER BY seq") == [
        (0, "succeeded", 1),
        (1, "succeeded", 1),
    ]
    assert scalar(database, "SELECT sum(succeeded) FROM usage") == 2
    assert broken_invariants(database) == set()


def test_a_claim_comes_back_after_its_lease_though_its_worker_lives(
    lost: LostAnswer, worker: Worker, database: Engine
) -> None:
    post(database)
    lost.of_first(exists("state = 'leased'"))
    with pytest.raises(db.CONNECTION_ERRORS):
        worker.slices.work()
    assert lost.happened
    until = "SELECT lease_until FROM slices WHERE state = 'leased'"
    claimed_until = scalar(database, until)
    worker.slices.renew()
    assert scalar(database, until) == claimed_until  # it doesn't know of this lease
    assert not worker.slices.work()
    execute(database, "UPDATE slices SET lease_until = now() - interval '1 ms'")
    execute(database, "UPDATE workers SET heartbeat_at = now() + interval '1 h'")
    assert transact(database, reap.reap, 0.0) == 1
    assert fetch(database, "SELECT state, suspect, deaths FROM slices") == [("ready", False, 0)]
    assert worker.slices.work()
    assert_done_once(database)


def test_results_are_recorded_once(lost: LostAnswer, worker: Worker, database: Engine) -> None:
    post(database)
    lost.of_first(exists("state = 'done'"))
    assert worker.slices.work()  # offers them again, and finds that the lease has ended
    assert lost.happened
    assert_done_once(database)
