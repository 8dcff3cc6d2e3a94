"""Commands that show calls, figures of a model, workers, and lines of their logs; lists that are
empty say what to do next."""

import json
from typing import Any

import pytest

from ops.cli.commands.admin import workers
from tests.support.command_line import run_millrace
from tests.support.servers.receiver import Reply, receiving
from tests.unit.ops.cli.conftest import Client

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


def test_a_call_is_a_line_of_what_is_known_of_it(client: Client) -> None:
    client.answers["/calls"] = [{"data": [CALL, REFUSED], "next": "call_0", "left_out": 3}]
    late, refused, *more = run_millrace(
        "calls", "--outcome", "late", "--slower", "5"
    ).output.splitlines()
    assert late == (
        "2026-05-01 12:00:00  call_1  acme  m@1  succeeded late  412.0 ms  queue 3.0 ms  "
        "batch 8  size 9  worker 12"
    )
    assert refused.endswith("overloaded  0.5 ms  size 7")
    assert more == ["not recorded, at a high rate: 3 more", "there are more: --after call_0"]
    [(_, query)] = client.asked
    assert (query["outcome"], query["slower_ms"]) == ("late", 5.0)


def test_the_history_of_a_name_is_that_of_its_versions_if_there_are_any(client: Client) -> None:
    named = [{"name": "m", "version": "1"}, {"name": "n", "version": "1"}]
    client.answers["/models"] = [{"data": named}]
    client.answers["/history"] = [{"about": "model:m@1", "step_s": 600, "data": [POINT]}]
    head, columns, row = run_millrace("models", "history", "m", "--range", "6h").output.splitlines()
    assert head == "m@1, every 10 min"
    assert row.split() == ["2026-05-01", "12:10", "4.5", "0", "20", "-", "12", "0.25", "0", "0.5"]
    assert len(columns) == len(row)
    assert client.asked[-1] == ("/history", {"about": "model:m@1", "range": "6h"})
    client.asked.clear()
    client.answers["/history"] = [{"about": "model:m@1", "step_s": 600, "data": []}]
    assert "no figures" in run_millrace("models", "history", "m@1").output
    assert [path for path, _ in client.asked] == ["/history"]
    client.answers["/models"] = [{"data": []}]
    unknown = run_millrace("models", "history", "x", status=2)
    assert "there is no model x" in unknown.output


def test_a_log_is_followed_from_its_end(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    path = "/workers/12/logs"
    client.answers[path] = [{"data": [LINE], "next": "1-0"}]
    shown = run_millrace("worker", "logs", "12", "--level", "warning").output.splitlines()
    assert shown == ["2026-05-01 12:00:00.123 warning a.b: it hung [job_id=job_1]", "Traceback"]
    client.asked.clear()
    second = {**LINE, "id": "2-0", "message": "it is back", "exception": ""}
    client.answers[path] = [
        {"data": [LINE], "next": "1-0"}, {"data": [second], "next": "2-0"}, None,
    ]  # fmt: skip
    monkeypatch.setattr("ops.cli.commands.admin.worker_logs.EVERY_S", 0.0)
    followed = run_millrace("worker", "logs", "12", "--follow", status=1)  # until one is none
    assert "it is back" in followed.output
    assert [query["after"] for _, query in client.asked] == ["", "1-0", "2-0"]


WORKER = {
    "id": 7, "name": "vm:5", "pool": "default", "device": "auto", "state": "ready", "died": None,
    "drain_asked": False, "models": [{"model": "m@1", "state": "ready"}],
}  # fmt: skip
SICK = {"state": "quarantined", "died": "sick", "drain_asked": True, "device_error": "ECC"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "7  vm:5  default  auto  ready  m@1:ready"),
        ({"drain_asked": True}, "7  vm:5  default  auto  ready  drain asked  m@1:ready"),
        ({"state": "lost", "died": "killed"}, "7  vm:5  default  auto  lost  killed"),
        (SICK, "7  vm:5  default  auto  quarantined  sick  ECC"),
        ({"state": "stopped"}, "7  vm:5  default  auto  stopped"),
    ],
)
def test_a_worker_that_ended_has_no_model_ready(changed: dict[str, object], said: str) -> None:
    assert workers.line(WORKER | changed) == said


def test_a_worker_tells_how_its_gpu_works_and_what_is_wrong_with_it() -> None:
    gpu = {"sm_activity": 0.38, "kernel_activity": 0.9, "throttling": [], "ecc_uncorrected": 0}
    assert "SMs 38% active" in workers.line(WORKER | {"gpu": gpu | {"xids": {}}})
    errors = {"throttling": ["sw_power_cap"], "ecc_uncorrected": 3, "xids": {"79": 1}}
    line = workers.line(WORKER | {"gpu": gpu | {"sm_activity": None} | errors})
    told = "kernel 90% of the time, sw_power_cap, 3 uncorrected memory errors, Xid 79"
    assert f"  {told}  " in line
    unknown = dict.fromkeys((*gpu, "xids"))
    assert workers.line(WORKER | {"gpu": unknown}) == workers.line(WORKER | {"gpu": None})


NOTHING = {
    "data": [], "next": None, "events": [], "total": {}, "url": None, "deliveries": [],
}  # fmt: skip


def asked(*arguments: str, status: int = 0, reply: Reply | None = None) -> tuple[str, str]:
    """(standard output, standard error) of a command, asked of an api with this answer."""
    with receiving() as api:
        api.reply = lambda request: reply or Reply(200, body=json.dumps(NOTHING).encode())
        url = f"http://127.0.0.1:{api.port}"
        done = run_millrace(*arguments, status=status, MILLRACE_URL=url)
    return done.stdout, done.stderr


@pytest.mark.parametrize(
    ("command", "next_step"),
    [
        ("jobs", "millrace submit FILE --model NAME"),
        ("jobs --state running", "`millrace jobs` lists all"),
        ("calls", "millrace infer"),
        ("calls --outcome late", "`millrace calls` lists all"),
        ("models", "millrace init"),
        ("workers", "`millrace up`"),
        ("webhooks job_1", "--webhook URL"),
        ("usage", "--from and --to"),
        ("usage --from 2020-01-01", "no usage in that time"),
        ("limits acme", "millrace limits acme --requests-per-s 100"),
        ("rollout status", "millrace rollout start"),
        ("scale status", "millrace worker"),
        ("scale history gpu", "millrace scale set gpu"),
    ],
)
def test_an_empty_answer_says_what_to_do_next(command: str, next_step: str) -> None:
    printed, said = asked(*command.split())
    assert printed == ""  # what is piped on stays empty
    assert said.startswith(("no ", "nothing ", "job_1 has no ", "acme has no "))
    assert next_step in said
    printed, said = asked(*command.split(), "--json")
    assert json.loads(printed) in (NOTHING, [])
    assert said == ""


def test_a_missing_key_is_named_with_the_command_that_makes_one() -> None:
    problem = {"title": "No valid credential", "detail": "the request has no credential"}
    for status in (401, 403):
        reply = Reply(status, body=json.dumps(problem).encode())
        _, said = asked("limits", "acme", status=1, reply=reply)
        assert "the request has no credential" in said
        assert "MILLRACE_API_KEY" in said
        assert "`millrace keys create --tenant NAME --role admin`" in said
