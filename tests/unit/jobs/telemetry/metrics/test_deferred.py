"""Deferred events are counted before metrics are read, and the page of metrics is what they are."""

import logging
import re
import threading

import pytest
from prometheus_client import Counter

from jobs.telemetry.metrics import catalog, deferred
from jobs.telemetry.metrics.deferred import Registry
from jobs.telemetry.metrics.metrics import SECTIONS
from tests.support.cases import each


def test_a_read_sees_all_deferred_events_but_for_those_that_fail(
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = Registry()
    seen = Counter("seen_total", "", registry=registry)
    for _ in range(3):
        deferred.defer(seen.inc, 2)
    assert registry.get_sample_value("seen_total") == 6
    deferred.defer(seen.inc, -1)  # a counter refuses that
    deferred.defer(seen.inc)
    with caplog.at_level(logging.ERROR):
        assert registry.get_sample_value("seen_total") == 7
    assert "failed to record a metric" in caplog.text


def test_rows_of_one_kind_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    def fail(rows: list[object]) -> None:
        raise ValueError("it can't count")

    for n in range(3):
        deferred.defer_row(seen.append, n, "x")
        deferred.defer_row(fail, n)
    with caplog.at_level(logging.ERROR):
        deferred.flush()
    assert seen == [[(0, "x"), (1, "x"), (2, "x")]]
    assert caplog.text.count("failed to record a metric") == 1


def test_events_of_many_threads_are_all_counted_and_the_queue_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deferred, "_MAX_QUEUED", 100)
    seen: list[int] = []

    def defer_many() -> None:
        for n in range(20_000):
            deferred.defer(seen.append, n)

    threads = [threading.Thread(target=defer_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) >= 80_000 - 100
    deferred.flush()
    assert len(seen) == 80_000


ALL = [metric for found in SECTIONS.values() for metric in found]


def test_the_page_of_metrics_is_current_and_explains_each_by_its_base_unit() -> None:
    assert catalog.page() == catalog.PAGE.read_text(), (
        "run: python -m jobs.telemetry.metrics.catalog"
    )
    for metric, case in each(ALL, name=catalog.exposed_name):
        with case:
            name = catalog.exposed_name(metric)
            assert re.fullmatch("millrace(_[a-z]+)+", name)
            assert not re.search("_(ms|mb|kb|percent|us|minutes)(_|$)", name)
            assert all(family.documentation for family in metric.describe())
