"""Celery's own command line sees the workers, and can't stop them."""

import json
import os
import subprocess
import sys

import pytest

from ops.supervisor.platform import Platform
from tests.support.platforms import TWO_WORKERS
from tests.support.wait import PATIENCE_S

pytestmark = pytest.mark.nightly
PLATFORM = TWO_WORKERS


def celery(platform: Platform, *arguments: str) -> dict[str, dict[str, object]]:
    """Runs a command as a reader of the page does; returns the replies by worker."""
    environ = {**os.environ, "MILLRACE_REDIS_URL": platform.settings.redis_url}
    command = [sys.executable, "-m", "celery", "-A", "workers.app", *arguments]
    command += ["--json", "--timeout", "10"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    replies = json.loads(done.stdout)
    parts = replies if isinstance(replies, list) else [replies]  # `control` lists them
    return {name: reply for part in parts for name, reply in part.items()}


def test_workers_answer_ping_and_stats(platform: Platform) -> None:
    pings = celery(platform, "inspect", "ping")
    assert [*pings.values()] == [{"ok": "pong"}] * 2
    stats = celery(platform, "inspect", "stats")
    assert stats.keys() == pings.keys()
    assert all(name.startswith("default-") and "%" not in name for name in stats)


def test_a_shutdown_is_refused_with_the_command_to_use(platform: Platform) -> None:
    replies = celery(platform, "control", "shutdown")
    assert len(replies) == 2
    assert all("millrace workers" in str(reply["error"]) for reply in replies.values())
    assert len(celery(platform, "inspect", "ping")) == 2


def test_without_a_broker_celery_says_which_setting_is_missing() -> None:
    environ = {name: value for name, value in os.environ.items() if "MILLRACE" not in name}
    command = [sys.executable, "-m", "celery", "-A", "workers.app", "status"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "MILLRACE_REDIS_URL" in done.stderr
