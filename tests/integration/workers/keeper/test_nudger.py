"""How many nudges are sent at once."""

from pathlib import Path

import pytest
import redis
from sqlalchemy import Engine

from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store.queue import backlog, workers
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


def test_a_burst_brings_everybody_once_though_a_small_job_came_just_before(
    database: Engine,
    settings: Settings,
    redis_client: "redis.Redis",
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "models.toml"
    path.write_text(MODELS)
    nudger = Nudger(settings, ModelsFile(path), database)
    ready = {"echo@1": WORKERS, "far@1": WORKERS}
    monkeypatch.setattr(workers, "ready_counts", lambda *_: ready)

    def sent(key: str, slices: int) -> int:
        redis_client.flushall()  # the workers have taken those before
        monkeypatch.setattr(backlog, "claimable", lambda *_: {key: slices})
        with database.begin() as tx:
            return nudger.send(tx)

    assert sent("echo@1", 1) == 1
    assert sent("echo@1", 1000) == ALL
    assert 0 < sent("echo@1", 1000) < ALL  # they were told
    assert sent("far@1", 1000) == ALL
