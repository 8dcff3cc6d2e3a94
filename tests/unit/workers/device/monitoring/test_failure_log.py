"""Log lines of failed launches."""

import logging
from types import SimpleNamespace

import pytest

from jobs.models.builtin_models import SAMPLES
from workers.device.monitoring.failure_log import FailureLog
from workers.engines.protocol import Transient
from workers.scheduler.entries import Entry, Launch

MODEL = SAMPLES.resolve("echo")
CALL = SimpleNamespace(id="call_1", tenant="acme")


def launch(entries: int) -> Launch:
    calls = [Entry(CALL, 0, "{}/0", 0, 1, None, 0.0) for _ in range(entries)]
    return Launch({}, "pace", calls, [], 0.0)


def test_it_counts_codes_and_quotes_nothing(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    outputs = ["fine", ValueError("an input"), Transient("an input"), ValueError("another")]
    FailureLog().log(MODEL, launch(4), outputs)
    said = "3 of 4 entries failed: 2 engine_error (ValueError), 1 transient (Transient)"
    assert caplog.messages == [said]


def test_a_model_that_always_fails_says_so_now_and_then(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    failures = FailureLog()
    for _ in range(1000):
        failures.log(MODEL, launch(1), [ValueError()])
    assert len(caplog.messages) == 1
    now[0] += 60
    failures.log(MODEL, launch(1), [ValueError()])
    assert caplog.messages[1].endswith("; 999 more launches failed since the last line")
    assert caplog.records[1].levelno == logging.WARNING
