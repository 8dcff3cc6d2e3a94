"""Metrics of a launch, by lane and by tenant, and log lines of those that failed."""

import logging
from types import SimpleNamespace

import pytest

from jobs.models.builtin_models import SAMPLES
from jobs.telemetry.metrics import record
from jobs.telemetry.metrics.labels import LabelLimit
from jobs.telemetry.metrics.metrics import REGISTRY
from workers.device.monitoring import launch_metrics
from workers.device.monitoring.failure_log import FailureLog
from workers.engines.protocol import Transient
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.snapshot import Rules

ECHO = SAMPLES.resolve("echo")


def entry(tenant: str, lane: str, size: int, arrived_s: float, prepare_s: float) -> Entry:
    made = Entry(None, 0, lane, 0, size, None, arrived_s, tenant=tenant)
    made.prepare_s = prepare_s
    return made


def grown(name: str, since: float = 0.0, **labels: str) -> float:
    return (REGISTRY.get_sample_value(name, labels) or 0.0) - since


@pytest.fixture(autouse=True)
def _room_for_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "TENANTS", LabelLimit(10))
    monkeypatch.setattr(record, "LANES", LabelLimit(10))


def test_a_launch_is_shared_out_among_lanes_and_tenants() -> None:
    model = SAMPLES.resolve("minilm")  # its time goes by size
    call = entry("alice", "{}/16", 10, arrived_s=1.0, prepare_s=0.5)
    items = [
        entry("alice", "{}/16", 10, arrived_s=2.0, prepare_s=0.25),
        entry("bob", "{}/24", 20, arrived_s=0.0, prepare_s=0.25),
    ]
    launch = Launch({}, "full", [call], items, 4.0, True, True, predicted_s=1.0, started_s=4.5)
    launch.engine_s = 2.0
    names = {"model": model.key}
    ratio = grown("millrace_launch_prediction_ratio_sum", **names)
    queue = grown("millrace_launch_stage_seconds_sum", stage="queue", **names)
    launch_metrics.record_launch(model, launch, Rules.from_model(model))

    def of(what: str, **labels: str) -> float:
        return grown(f"millrace_{what}_total", **names, **labels)

    assert grown("millrace_launch_prediction_ratio_sum", ratio, **names) == 2.0
    mean_s = grown("millrace_launch_stage_seconds_sum", queue, stage="queue", **names)
    assert mean_s == pytest.approx((2.5 + 1.75 + 3.75) / 3)
    assert of("lane_entries", lane="{}/16") == 2
    assert of("lane_wait_seconds", lane="{}/16") == pytest.approx(4.25)
    assert of("lane_wait_seconds", lane="{}/24") == pytest.approx(3.75)
    assert of("tenant_entries", tenant="alice", kind="call") == 1
    assert of("tenant_entries", tenant="alice", kind="item") == 1
    assert of("tenant_device_seconds", tenant="alice") == pytest.approx(1.0)
    assert of("tenant_device_seconds", tenant="bob") == pytest.approx(1.0)
    assert of("tenant_units", tenant="bob") == 20
    assert of("launch_units") == 40
    assert of("launch_padded_units") == launch.padded_units


def test_a_launch_is_full_by_rows_or_by_size() -> None:
    found = []
    for rows in (1, ECHO.limits.most_rows):
        since = grown("millrace_launch_fill_ratio_sum", model=ECHO.key)
        entries = [entry("alice", "{}/0", 1, 0.0, 0.0) for _ in range(rows)]
        launch = Launch({}, "full", [], entries, closed_s=1.0, started_s=1.0)
        launch_metrics.record_launch(ECHO, launch, Rules.from_model(ECHO))
        found.append(grown("millrace_launch_fill_ratio_sum", since, model=ECHO.key))
    assert found == [pytest.approx(1 / ECHO.limits.most_rows), pytest.approx(1.0)]


CALL = SimpleNamespace(id="call_1", tenant="acme")


def failing(entries: int) -> Launch:
    calls = [Entry(CALL, 0, "{}/0", 0, 1, None, 0.0) for _ in range(entries)]
    return Launch({}, "pace", calls, [], 0.0)


def test_it_counts_codes_and_quotes_nothing(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    outputs = ["fine", ValueError("an input"), Transient("an input"), ValueError("another")]
    FailureLog().log(ECHO, failing(4), outputs)
    said = "3 of 4 entries failed: 2 engine_error (ValueError), 1 transient (Transient)"
    assert caplog.messages == [said]


def test_a_model_that_always_fails_says_so_now_and_then(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    failures = FailureLog()
    for _ in range(1000):
        failures.log(ECHO, failing(1), [ValueError()])
    assert len(caplog.messages) == 1
    now[0] += 60
    failures.log(ECHO, failing(1), [ValueError()])
    assert caplog.messages[1].endswith("; 999 more launches failed since the last line")
    assert caplog.records[1].levelno == logging.WARNING
