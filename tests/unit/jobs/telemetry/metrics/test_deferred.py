"""What is noted is counted before anybody reads."""

import logging
import threading

import pytest
from prometheus_client import Counter

from jobs.telemetry.metrics import deferred
from jobs.telemetry.metrics.deferred import Registry


def test_who_reads_reads_all_that_was_noted() -> None:
    registry = Registry()
    seen = Counter("seen_total", "", registry=registry)
    for _ in range(3):
        deferred.note(seen.inc, 2)
    assert registry.get_sample_value("seen_total") == 6


def test_what_goes_wrong_is_logged_and_the_rest_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = Registry()
    seen = Counter("seen_total", "", registry=registry)
    deferred.note(seen.inc, -1)  # a counter refuses that
    deferred.note(seen.inc)
    with caplog.at_level(logging.ERROR):
        assert registry.get_sample_value("seen_total") == 1
    assert "wasn't counted" in caplog.text


def test_notes_of_many_threads_are_all_counted_and_never_pile_up() -> None:
    registry = Registry()
    seen = Counter("seen_total", "", registry=registry)

    def note_many() -> None:
        for _ in range(20_000):
            deferred.note(seen.inc)

    threads = [threading.Thread(target=note_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(deferred._noted) <= deferred._MOST
    assert registry.get_sample_value("seen_total") == 80_000
