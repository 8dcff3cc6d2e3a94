"""Start of a worker."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine, make_url

from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from tests.support.processes import spawned
from tests.support.stores.transactions import scalar
from tests.support.wait import eventually
from workers.process.runtime import Runtime


def test_a_worker_that_starts_while_the_database_is_away_comes_up_with_it(
    settings: Settings, database: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    url, away = make_url(settings.database_url), tmp_path / "away"
    elsewhere = url.update_query_dict({"host": str(away)}).render_as_string()
    models = tmp_path / "models.toml"
    models.write_text('[[model]]\nname = "a"\nversion = "1"\nengine = "echo"\n')
    runtime = Runtime(settings.evolve(database_url=elsewhere), ModelsFile(models))
    starting = threading.Thread(target=runtime.start)
    starting.start()
    eventually(lambda: "the database is away" in caplog.text)
    assert starting.is_alive()
    away.symlink_to(str(url.query["host"]))
    try:
        eventually(lambda: _ready_workers(database) == 1)
    finally:
        starting.join()
        runtime.stop()


def test_all_that_a_worker_says_from_start_to_end_are_lines_of_its_log(
    settings: Settings, database: Engine, tmp_path: Path
) -> None:
    models = tmp_path / "models.toml"
    models.write_text('[[model]]\nname = "a"\nversion = "1"\nengine = "echo"\n')
    env = os.environ | settings.evolve(models=models, log_format="json").environment()
    with spawned(
        [sys.executable, "-m", "workers"], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as worker:
        eventually(lambda: _ready_workers(database) == 1)
        worker.terminate()
        said, _ = worker.communicate()
    assert worker.returncode == 0
    assert [json.loads(line)["process"] for line in said.splitlines()]


def _ready_workers(database: Engine) -> int:
    found: int = scalar(database, "SELECT count(*) FROM workers WHERE state = 'ready'")
    return found
