"""How many nudges are sent at once, and how often."""

import select
from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from jobs import clock
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.store.queue import backlog, workers
from tests.support.stores.transactions import transact
from tests.support.wait import eventually
from workers.keeper.nudger import Nudger

MODELS = """
[[model]]
name = "echo"
version = "1"
engine = "echo"

[[model]]
name = "far"
version = "1"
engine = "echo"
pool = "other"
"""
WORKERS = 4
ALL = 8 * WORKERS


@pytest.fixture
def nudger(
    settings: Settings, database: Engine, redis_client: "redis.Redis", tmp_path: Path
) -> Nudger:
    path = tmp_path / "models.toml"
    path.write_text(MODELS)
    return Nudger(settings, ModelsFile(path), database)


def test_a_burst_brings_everybody_once_though_a_small_job_came_just_before(
    database: Engine, redis_client: "redis.Redis", nudger: Nudger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready = {"echo@1": WORKERS, "far@1": WORKERS}
    monkeypatch.setattr(clock, "monotonic", lambda: 100.0)
    monkeypatch.setattr(workers, "ready_counts", lambda *_: ready)

    def sent(key: str, slices: int) -> int:
        redis_client.flushall()  # the workers have taken those before
        monkeypatch.setattr(backlog, "claimable", lambda *_: {key: slices})
        return transact(database, nudger.send)

    assert sent("echo@1", 1) == 1
    assert sent("echo@1", 1000) == ALL
    assert 0 < sent("echo@1", 1000) < ALL  # they were told
    assert sent("far@1", 1000) == ALL


def test_a_stream_of_small_jobs_brings_few_who_go_on(
    database: Engine, redis_client: "redis.Redis", nudger: Nudger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(workers, "ready_counts", lambda *_: {"echo@1": 1})
    monkeypatch.setattr(backlog, "claimable", lambda *_: {"echo@1": 7})

    def sent() -> int:
        redis_client.flushall()
        return transact(database, nudger.send)

    assert sent() == 7
    assert sent() == 2
    now_s[0] += 1
    assert sent() == 7


def test_notifications_that_keep_coming_are_looked_after_less_often(
    database: Engine, nudger: Nudger
) -> None:
    def notify() -> None:
        transact(database, db.notify_work)
        listening = [nudger._listening]  # noqa: SLF001 - its socket tells what has come
        eventually(lambda: select.select(listening, [], [], 0)[0])

    nudger.run_once()  # listens
    found = []
    for _ in range(4):
        notify()
        nudger.run_once()
        found.append(nudger.interval_s)
    assert found == [0.02, 0.04, 0.04, 0.04]
    nudger.run_once()  # nothing comes
    assert nudger.interval_s == 0.01
    nudger.close()
