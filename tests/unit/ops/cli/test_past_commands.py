"""Commands that show what was: calls, figures of a model, lines of a worker's log."""

from typing import Any

import click
import pytest
from click.testing import CliRunner

from ops.cli.commands import common
from ops.cli.commands.admin.worker_logs import logs
from ops.cli.commands.jobs.ended_calls import calls
from ops.cli.commands.models.history import history

CALL = {
    "id": "call_1", "tenant": "acme", "model": "m", "version": "1", "outcome": "succeeded",
    "late": True, "ended_at": "2026-05-01T12:00:00.5Z", "size": 7, "units": 9, "worker": "12",
    "timing": {"total_ms": 412.0, "queue_ms": 3.04, "batch_size": 8},
}  # fmt: skip
REFUSED: dict[str, Any] = {
    **CALL, "outcome": "overloaded", "late": False, "units": None, "worker": None,
    "timing": {"total_ms": 0.5},
}  # fmt: skip
POINT = {
    "at": "2026-05-01T12:10:00Z", "calls_s": 4.5, "items_s": 0.0, "tokens_s": None,
    "refused_s": 0.25, "failed_s": 0.0, "waiting": 12.0, "busy": 0.5, "p50_s": 0.02, "p95_s": None,
}  # fmt: skip
LINE = {
    "id": "1-0", "timestamp": "2026-05-01T12:00:00.123Z", "level": "warning", "logger": "a.b",
    "message": "it hung", "exception": "Traceback", "job_id": "job_1", "worker": "12",
}  # fmt: skip


class Client:
    """Answers each path with what the test gave for it, in turn."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.answers: dict[str, list[Any]] = {}

    def close(self) -> None: ...

    def get(self, path: str, **query: Any) -> Any:
        self.asked.append((path, query))
        answers = self.answers[path]
        return answers.pop(0) if len(answers) > 1 else answers[0]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Client:
    made = Client()
    monkeypatch.setattr(common, "_connect", lambda url, key: made)
    return made


def run(command: click.Command, *arguments: str) -> str:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 0, done.output
    return done.output


def test_a_call_is_a_line_of_what_is_known_of_it(client: Client) -> None:
    client.answers["/calls"] = [{"data": [CALL, REFUSED], "next": "call_0", "left_out": 3}]
    late, refused, *more = run(calls, "--outcome", "late", "--slower", "5").splitlines()
    assert late == (
        "2026-05-01 12:00:00  call_1  acme  m@1  succeeded late  412.0 ms  queue 3.0 ms  "
        "batch 8  size 9  worker 12"
    )
    assert refused.endswith("overloaded  0.5 ms  size 7")
    assert more == ["not recorded, at a high rate: 3 more", "there are more: --after call_0"]
    [(_, query)] = client.asked
    assert (query["outcome"], query["slower_ms"]) == ("late", 5.0)


def test_the_history_of_a_name_is_that_of_its_versions(client: Client) -> None:
    named = [{"name": "m", "version": "1"}, {"name": "n", "version": "1"}]
    client.answers["/models"] = [{"data": named}]
    client.answers["/history"] = [{"about": "model:m@1", "step_s": 600, "data": [POINT]}]
    head, columns, row = run(history, "m", "--range", "6h").splitlines()
    assert head == "m@1, every 10 min"
    assert row.split() == ["2026-05-01", "12:10", "4.5", "0", "20", "-", "12", "0.25", "0", "0.5"]
    assert len(columns) == len(row)
    assert client.asked[-1] == ("/history", {"about": "model:m@1", "range": "6h"})


def test_a_version_needs_no_list_and_may_have_no_figures(client: Client) -> None:
    client.answers["/history"] = [{"about": "model:m@1", "step_s": 600, "data": []}]
    assert "no figures" in run(history, "m@1")
    assert [path for path, _ in client.asked] == ["/history"]


def test_an_unknown_name_is_told(client: Client) -> None:
    client.answers["/models"] = [{"data": []}]
    done = CliRunner().invoke(history, ["x"])
    assert done.exit_code == 2
    assert "there is no model x" in done.output


def test_lines_are_as_a_terminal_shows_them(client: Client) -> None:
    client.answers["/workers/12/logs"] = [{"data": [LINE], "next": "1-0"}]
    assert run(logs, "12", "--level", "warning").splitlines() == [
        "2026-05-01 12:00:00.123 warning a.b: it hung [job_id=job_1]", "Traceback",
    ]  # fmt: skip


def test_a_log_is_followed_from_where_it_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    second = {**LINE, "id": "2-0", "message": "it is back", "exception": ""}
    client.answers["/workers/12/logs"] = [
        {"data": [LINE], "next": "1-0"}, {"data": [second], "next": "2-0"}, None,
    ]  # fmt: skip
    monkeypatch.setattr("ops.cli.commands.admin.worker_logs.EVERY_S", 0.0)
    done = CliRunner().invoke(logs, ["12", "--follow"])  # ends with the answer that is none
    assert "it is back" in done.output
    assert [query["after"] for _, query in client.asked] == ["", "1-0", "2-0"]
