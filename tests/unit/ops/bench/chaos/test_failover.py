"""Faults by which a server takes another one's place: what was acknowledged is there, and clients
find it through their proxies."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from signal import SIGKILL, SIGSTOP

import psycopg
import pytest
import redis

from jobs.calls.redis import connect
from jobs.store import db
from jobs.store.connections.bounded import BoundedConnection
from ops.bench.chaos.clients.client import Ledger
from ops.bench.chaos.clients.load import Load
from ops.bench.chaos.faults.failover import commits_late, primary_lost, redis_failover
from ops.bench.chaos.faults.targets import Proof, Stage, Steps
from ops.bench.chaos.fleet import ChaosFleet
from ops.bench.chaos.network import links
from tests.support.wait import PATIENCE_S, eventually

pytestmark = pytest.mark.heavy

CHILD = "keeper-1"


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChaosFleet]:
    """The servers, and the links of a process that doesn't run."""
    made = ChaosFleet(tmp_path_factory.mktemp("fleet") / "home", apis=0, keepers=1, workers=0)
    made.servers.start()
    yield made
    made.stop()


@pytest.fixture
def stage(fleet: ChaosFleet, tmp_path: Path) -> Iterator[Stage]:
    ledger = Ledger(tmp_path / "ledger")
    yield Stage(fleet, Load([], fleet.redis_url, 1, ledger))
    ledger.close()


class Writer:
    """Commits numbers, one after another, at whichever server takes them."""

    def __init__(self, url: str) -> None:
        self._url, self._over = db.plain_url(url), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[int] = []
        self.slowest_s = 0.0

    def __enter__(self) -> "Writer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def goes_on(self) -> None:
        """Returns after some more commits."""
        count = len(self.acknowledged)
        eventually(lambda: len(self.acknowledged) > count + 10)

    def _run(self) -> None:
        number = 0
        while not self._over.is_set():
            with (
                suppress(psycopg.Error),
                BoundedConnection.connect(self._url, autocommit=True, **db.TCP_OPTIONS) as opened,
            ):
                opened.execute("CREATE TABLE IF NOT EXISTS written (number int)")
                while not self._over.is_set():
                    number += 1
                    since_s = time.monotonic()
                    opened.execute("INSERT INTO written VALUES (%s)", [number])
                    self.slowest_s = max(self.slowest_s, time.monotonic() - since_s)
                    self.acknowledged.append(number)


def fired(stage: Stage, steps: Steps[Proof]) -> Proof:
    """Steps a fault as the main loop does; returns its proof."""

    def step() -> Proof | None:
        stage.fleet.poll()
        try:
            next(steps)
            return None
        except StopIteration as done:
            proof: Proof = done.value
            return proof

    return eventually(step)


@pytest.fixture
def writer(fleet: ChaosFleet) -> Iterator[Writer]:
    url = links.addresses(fleet.links, CHILD, fleet.servers)["database_url"]
    with Writer(url) as made:
        made.goes_on()
        yield made


def test_a_promoted_standby_has_all_that_was_acknowledged(stage: Stage, writer: Writer) -> None:
    for number, seen in ((SIGKILL, "wait_status"), (SIGSTOP, "state_seen")):
        room = stage.fleet.servers.room
        proof = fired(stage, primary_lost(number, stage, Random(0)))
        assert proof[seen] in ("SIGKILL", "T")
        assert stage.fleet.servers.room == 1 - room
        writer.goes_on()
    assert proof["timeline"] == "00000003"
    acknowledged = {(each,) for each in list(writer.acknowledged)}
    assert acknowledged <= set(stage.fleet.query("SELECT number FROM written") or ())
    assert stage.busy == set()


def test_commits_wait_for_a_slow_confirmation_until_the_fault_is_over(
    stage: Stage, writer: Writer
) -> None:
    proof = fired(stage, commits_late(stage, Random(0)))
    assert proof["median_late_s"] >= 0.2
    assert writer.slowest_s >= 0.2
    writer.goes_on()
    followed = "SELECT count(*) FROM pg_stat_replication"
    eventually(lambda: stage.fleet.query(followed) == [(0,)])


def test_the_next_master_is_reached_by_proxies_of_ones_own(stage: Stage) -> None:
    fleet, group = stage.fleet, stage.fleet.servers.group
    url = links.addresses(fleet.links, CHILD, fleet.servers)["redis_url"]
    own = [fleet.links[f"{CHILD} to redis {n}"] for n in (1, 2)]
    with closing(connect(url, PATIENCE_S)) as client:
        client.set("a", "b")
    proof = fired(stage, redis_failover(stage, Random(0)))
    assert proof["masters"] == group.servers
    assert proof["wait_status"] == "SIGKILL"
    eventually(lambda: sets(fleet, url))
    assert [link.connections > 0 for link in own] == [True, True]
    eventually(group.has_replica)


def sets(fleet: ChaosFleet, url: str) -> bool:
    fleet.poll()
    with suppress(redis.RedisError), closing(connect(url, PATIENCE_S)) as client:
        return bool(client.set("a", "c"))
    return False
