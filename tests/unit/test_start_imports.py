"""Modules that a process doesn't load as it starts: each would cost time at every start, and memory
of every process. Counted by name, since times vary."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cases import each

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[2]
BEGIN = "from jobs.processes import startup; startup.begin(); "
NOBODYS = {
    "alembic", "boto3", "httpcore", "httpx", "jwt", "matplotlib", "numpy", "opentelemetry.sdk",
    "pynvml", "rich", "tokenizers", "torch",
}  # fmt: skip
"""Modules for what most processes never do."""
OURS = {"sqlalchemy", "psycopg", "redis", "prometheus_client", "celery", "fastapi"}
COMMANDS = "from ops.cli.commands import common; from ops.cli.commands.jobs import jobs, results; "
COMMANDS += "from ops.cli.commands.admin import scale, usage, workers; "
COMMANDS += "from ops.cli.commands.models import models"

STARTS = {
    "api": (BEGIN + "import api.server", NOBODYS | {"celery", "kombu"}),
    "worker": (BEGIN + "import workers.app", NOBODYS | {"fastapi", "jinja2"}),
    "keeper": (BEGIN + "import workers.keeper.keeper", NOBODYS | {"fastapi", "jinja2"}),
    # It loads the database's driver once the other processes have begun to load.
    "up": ("import ops.cli.commands.platform.up", NOBODYS | OURS),
    # A TAB after the command, or its help; only a command that runs loads more.
    "millrace jobs --help": (COMMANDS, NOBODYS | OURS | {"pydantic"}),
    "millrace --help": ("import ops.cli.main", NOBODYS | OURS | {"pydantic", "ssl", "jobs"}),
}


def test_a_process_starts_without_what_it_may_never_need() -> None:
    for process, case in each(STARTS):
        with case:
            code, unwanted = STARTS[process]
            assert {*_printed(f"{code}; import sys; print(*sys.modules)")} & unwanted == set()


def _printed(code: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    )
    return done.stdout.split()


def test_redis_is_loaded_as_without_opentelemetry_which_stays_importable() -> None:
    code = BEGIN + (
        "from redis.observability import metrics, providers; import opentelemetry.sdk.metrics;"
        "print(metrics.OTEL_AVAILABLE, providers.OTEL_AVAILABLE)"
    )
    assert _printed(code) == ["False", "False"]
