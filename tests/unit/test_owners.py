"""Tasks and threads that go on have an owner, which notices their end."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.cases import each

ROOT = Path(__file__).parents[2]
#: Files that start tasks or threads whose results or errors somebody waits for.
AWAITED = {
    "api/auth/cache.py": "each lookup has its own callback",
    "api/background.py": "the owner",
    "api/services/single_flight.py": "whoever asked for the query",
    "api/gateway/streaming/call_stream.py": "the reader of the stream",
    "api/http/authorized_stream.py": "the response",
    "api/http/connections/connection.py": "the request, which cancels it",
    "api/services/diagnostics.py": "whoever asks for the findings",
    "ops/cli/model_check.py": "the check, which ends by it",
    "ops/processes/owner.py": "the owner",
}
TASKS = {"create_task", "ensure_future"}
SUPERVISING = ("processes", "embedded", "supervisor", "backup", "cli")
"""Folders of `ops` whose code runs in `millrace up`, and in the parents of workers."""
THREADS = {"Thread", "Timer", "start_new_thread", "ThreadPoolExecutor", "run_in_executor"}
PROCESSES = ("api/server.py", "workers/app.py", "workers/keeper/keeper.py")
PROCESSES += ("workers/scaler/scaler.py",)
"""Beginnings of processes whose threads have no owner but the process, which ends with any."""


def _starts(path: Path, names: set[str]) -> list[int]:
    """Lines that call one of these, but for tasks of a group."""
    return [
        node.lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and getattr(node.func, "attr", getattr(node.func, "id", "")) in names
        and getattr(getattr(node.func, "value", None), "id", "") != "group"
    ]


def _supervising() -> Iterator[Path]:
    for folder in SUPERVISING:
        yield from sorted((ROOT / "ops" / folder).rglob("*.py"))


def test_each_task_of_an_api_has_an_owner() -> None:
    for path, case in each(sorted((ROOT / "api").rglob("*.py")), name=lambda path: path):
        with case:
            starts = _starts(path, TASKS)
            owned = str(path.relative_to(ROOT)) in AWAITED
            assert bool(starts) == owned, f"lines {starts}: use api/background.py"


def test_each_thread_of_a_supervisor_has_an_owner() -> None:
    for path, case in each(_supervising(), name=lambda path: path):
        with case:
            starts = _starts(path, THREADS | TASKS)
            owned = str(path.relative_to(ROOT)) in AWAITED
            assert bool(starts) == owned, f"lines {starts}: use ops/processes/owner.py"


def test_the_end_of_a_thread_of_any_other_process_ends_that() -> None:
    for path, case in each(PROCESSES):
        with case:
            assert "threading.excepthook = " in (ROOT / path).read_text()
