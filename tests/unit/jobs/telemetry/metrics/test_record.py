"""What happens becomes metrics, at once or a moment later, with bounded labels and vLLM's names for
generation."""

import logging
import re
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import Counter

from jobs import clock
from jobs.telemetry.metrics import catalog, deferred, generation, metrics, record
from jobs.telemetry.metrics.deferred import Registry
from jobs.telemetry.metrics.generation import EndedRequest, PoolState, Targets
from jobs.telemetry.metrics.labels import OTHER, GaugeTable, LabelLimit
from jobs.telemetry.metrics.metrics import REGISTRY, SECTIONS
from jobs.telemetry.reports import child_processes
from jobs.telemetry.reports.child_processes import ChildCounters
from jobs.telemetry.reports.window import snapshot
from tests.support.cases import each
from workers.device.monitoring.utilization import Utilization

TARGETS = Targets(ttft_s=1.0, itl_s=0.1)
ENDED = EndedRequest(0.2, 0.3, 2.0, 0.5, 0.05, 10, 4, 40)


@pytest.fixture
def _off() -> Iterator[None]:
    record.set_enabled(False)
    yield
    record.set_enabled(True)


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"millrace_{name}", labels) or 0.0


def series(count: str, model: str, label: str) -> list[str]:
    """Values of a label that a count of the model has."""
    found = [(name, dict(labels)) for name, labels in snapshot(REGISTRY).counts]
    name = f"millrace_{count}_total"
    return [its[label] for one, its in found if one == name and its["model"] == model]


def test_the_hundred_and_first_tenant_shares_a_series_and_a_lane_has_no_long_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deferred.flush()  # of other tests, whose tenants would take series
    monkeypatch.setattr(record, "TENANTS", LabelLimit(100))
    before = value("tenant_units_total", tenant=OTHER, model="many@1")
    for n in range(101):
        record.tenant_launch("many@1", f"tenant-{n}", "call", 1, 1, 0.1, 0.0)
    named = [one for one in series("tenant_units", "many@1", "tenant") if one != OTHER]
    assert 95 <= len(named) <= 100  # threads of earlier tests may take a few meanwhile
    others = value("tenant_units_total", tenant=OTHER, model="many@1") - before
    assert len(named) + others == 101
    limit = LabelLimit(2)
    assert [limit(name) for name in ("a", "b", "c", "a", "d")] == ["a", "b", OTHER, "a", OTHER]
    record.lane_launch("long@1", "x" * 5000, 1, 0.0)
    assert max(map(len, series("lane_entries", "long@1", "lane"))) < 110


def test_requests_and_calls_are_counted_by_label_and_what_is_over_at_once_needs_no_prediction() -> (
    None
):
    for n in range(5):
        record.request("POST", "/rows", 200 if n else 429, None)
        record.call("rows@2", "bulk", "succeeded" if n else "overloaded", n > 2 if n else None)
    name = "http_requests_total"
    assert value(name, method="POST", route="/rows", status="200") == 4
    assert value(name, method="POST", route="/rows", status="429") == 1
    labels = {"model": "rows@2", "class": "bulk"}
    assert value("calls_total", **labels, outcome="succeeded") == 4
    assert value("call_target_total", model="rows@2", met="true") == 2
    assert value("call_target_total", model="rows@2", met="false") == 2
    cases = [
        ("brief@1", 0.0004, 0.000001, 1.0),
        ("woken@1", 0.004, 0.0001, 4.0),
        ("long@2", 0.3, 0.2, 1.5),
    ]
    for (model, seconds, predicted_s, ratio), case in each(cases):
        with case:
            record.launch(model, "pace", {"call": 1}, 0.1, seconds, predicted_s, seconds, 1, 1, {})
            assert value("launch_prediction_ratio_sum", model=model) == pytest.approx(ratio)


def test_calls_are_timed_as_if_one_by_one() -> None:
    for seconds, engine_ms in ((0.2, 150.0), (0.005, 1.0), (60.0, 70_000.0)):
        timing = {"engine_ms": engine_ms, "queue_ms": 2.5, "flush": "pace"}
        record.call_answered("rows@1", "bulk", seconds < 1, seconds, timing)
    name, labels = "call_seconds", {"model": "rows@1", "class": "bulk"}
    assert value("calls_total", **labels, outcome="succeeded") == 3
    assert value("call_target_total", model="rows@1", met="false") == 1
    assert value(f"{name}_count", **labels) == 3
    assert value(f"{name}_sum", **labels) == pytest.approx(60.205)
    assert value(f"{name}_bucket", **labels, le="0.005") == 1
    assert value(f"{name}_bucket", **labels, le="0.2") == 2
    assert value(f"{name}_bucket", **labels, le="30.0") == 2
    name, labels = "call_stage_seconds", {"model": "rows@1"}
    assert value(f"{name}_sum", **labels, stage="engine") == pytest.approx(70.151)
    assert value(f"{name}_sum", **labels, stage="queue") == pytest.approx(0.0075)
    gateway = {**labels, "stage": "gateway"}
    assert value(f"{name}_sum", **gateway) == pytest.approx(0.2 - 0.1525 + 0.005 - 0.0035)
    assert value(f"{name}_bucket", **gateway, le="0.0001") == 1
    assert value(f"{name}_count", **gateway) == 3


@pytest.mark.usefixtures("_off")
def test_switched_off_nothing_is_counted() -> None:
    before = snapshot(REGISTRY).counts
    record.call("off@1", "standard", "succeeded", True)
    record.call_answered("off@1", "standard", True, 1.0, {"engine_ms": 1000.0})
    with record.keeper_run("off"):
        record.transaction(1.0)
    generation.request_ended("off@1", "call", ENDED, ["stop"], TARGETS)
    assert snapshot(REGISTRY).counts == before


def test_what_a_child_counted_is_added_to_its_parents() -> None:
    counters = ChildCounters()
    record.job_submitted("child@1", "bulk", 7)
    record.transaction(0.1)
    news = counters.increases()
    assert news == {
        ("millrace_items_submitted_total", (("model", "child@1"),)): 7,
        ("millrace_jobs_submitted_total", (("class", "bulk"), ("model", "child@1"))): 1,
    }
    assert counters.increases() == {}
    child_processes.add_increases(news)
    assert value("items_submitted_total", model="child@1") == 14


def test_a_duty_that_raises_has_failed_and_a_table_forgets_what_is_there_no_more() -> None:
    with pytest.raises(ValueError, match="no"), record.keeper_run("failing"):
        raise ValueError("no")
    assert value("keeper_runs_total", service="failing", outcome="failed") == 1
    assert value("keeper_runs_total", service="failing", outcome="done") == 0
    table = GaugeTable(metrics.READY)
    table.set({("one@1",): 1, ("two@1",): 2})
    table.set({("two@1",): 3})
    assert REGISTRY.get_sample_value("millrace_model_ready_workers", {"model": "one@1"}) is None
    assert value("model_ready_workers", model="two@1") == 3
    table.set({})


def test_a_device_is_busy_while_any_launch_is_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    busy = Utilization("dev")
    with busy.launch():
        now[0] += 2
        with busy.launch():
            now[0] += 3
        now[0] += 1
        busy.update()
        assert value("device_busy_seconds_total", device="dev") == 6
    now[0] += 10
    with busy.launch():
        now[0] += 1
    assert value("device_busy_seconds_total", device="dev") == 7


_models = iter(f"m{n}@1" for n in range(1000))


@pytest.fixture
def model() -> str:
    return next(_models)


def target(model: str, name: str) -> tuple[float, float]:
    """How often it was met, and missed."""
    labels = {"model": model, "target": name}
    met, missed = (value("generation_target_total", **labels, met=m) for m in ("true", "false"))
    return met, missed


def test_a_request_and_its_steps_are_timed_from_its_arrival_to_its_last_token(model: str) -> None:
    generation.request_ended(model, "call", ENDED, ["stop"], TARGETS)
    timed = {"time_to_first_token": 0.5, "request_queue_time": 0.2}
    timed |= {"request_prefill_time": 0.3, "request_decode_time": 2.0}
    for name, seconds in timed.items():
        assert value(f"{name}_seconds_sum", model=model, kind="call") == seconds
    assert value("request_success_total", model=model, finished_reason="stop") == 1
    assert value("prompt_tokens_total", model=model) == 10
    assert value("generation_tokens_total", model=model) == 40
    assert value("prefix_cache_hits_total", model=model) == 4
    assert value("prefix_cache_queries_total", model=model) == 10
    generation.step_ended(model, 0.2, 64, {"call": (0.2, 0.25), "item": (0.2,)})
    generation.step_ended(model, 0.05, 0, {"call": (0.05,)})
    assert value("generation_step_seconds_sum", model=model, prefill="true") == 0.2
    assert value("generation_step_seconds_sum", model=model, prefill="false") == 0.05
    assert value("inter_token_latency_seconds_count", model=model, kind="call") == 3
    assert value("inter_token_latency_seconds_count", model=model, kind="item") == 1


def test_the_pool_is_as_it_was_last_and_what_did_not_happen_is_not_timed(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, "TENANTS", LabelLimit(2))  # other tests have named some
    before = PoolState({"call": 3, "item": 4}, {"call": 2, "item": 9}, 100, 0)
    generation.pool_changed(model, before, {"a": 75, "b": 25})
    after = PoolState({"call": 2, "item": 0}, {"call": 0, "item": 5}, 100, 75)
    generation.pool_changed(model, after, {"a": 0, "b": 25})
    assert value("kv_cache_usage_perc", model=model) == 0.25
    assert value("kv_cache_blocks", model=model) == 100
    assert value("num_requests_running", model=model, kind="call") == 2
    assert value("num_requests_running", model=model, kind="item") == 0
    assert value("num_requests_waiting", model=model, kind="item") == 5
    blocks = [value("tenant_kv_cache_blocks", model=model, tenant=one) for one in ("a", "b")]
    assert blocks == [0, 25]
    generation.pool_changed(model, PoolState({"call": 3}, {"call": 0}, 0, 0), {})
    assert value("kv_cache_usage_perc", model=model) == 0, "of a server of unknown blocks"
    generation.request_ended(model, "item", EndedRequest(preemptions=2), [])
    assert value("num_preemptions_total", model=model, kind="item") == 2
    generation.request_ended(model, "call", EndedRequest(queue_s=3.0), [])
    assert value("request_queue_time_seconds_count", model=model, kind="call") == 1
    assert value("time_to_first_token_seconds_count", model=model, kind="call") == 0
    assert target(model, "ttft") == (0, 0)


def test_calls_are_held_to_both_targets_and_items_to_none(model: str) -> None:
    cases = [
        (ENDED, (1, 0), (1, 0)),
        (EndedRequest(ttft_s=1.01, itl_s=0.11), (0, 1), (0, 1)),
        (EndedRequest(ttft_s=1.0), (1, 0), (0, 0)),
        (EndedRequest(), (0, 1), (0, 0)),
    ]
    for (timing, ttft, itl), case in each(cases):
        with case:
            its = next(_models)
            generation.request_ended(its, "call", timing, [], TARGETS)
            assert (target(its, "ttft"), target(its, "itl")) == (ttft, itl)
    generation.request_ended(model, "item", ENDED, [], TARGETS)
    assert target(model, "ttft") == (0, 0)
    assert value("time_to_first_token_seconds_count", model=model, kind="item") == 1


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
