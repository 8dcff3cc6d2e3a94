"""How the whole system stands, as a keeper counts it and writes it down each minute."""

import threading
from collections.abc import Iterator
from unittest.mock import Mock

import pytest
import redis
from sqlalchemy import Engine

from jobs import clock
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from jobs.store.monitoring import gauges
from jobs.store.queue import workers
from jobs.store.queue.workers import ModelRow
from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.metrics import REGISTRY
from jobs.telemetry.reports.reports import KEY, Report
from jobs.telemetry.reports.window import WindowDelta
from tests.support.stores import store
from tests.support.stores.transactions import execute, fetch, transact
from tests.support.wait import PATIENCE_S, eventually
from workers.keeper.monitoring.gauges import (
    MIN_PAUSE_S,
    STUCK_AFTER_S,
    GaugeCollector,
    jain,
    pause_s,
    shares,
)
from workers.keeper.monitoring.history_writer import HistoryWriter
from workers.keeper.monitoring.latency_probe import LatencyProbe


@pytest.fixture
def counted(settings: Settings, redis_client: "redis.Redis", database: Engine) -> GaugeCollector:
    return GaugeCollector(settings, redis_client, ModelsFile(None), database)


def gauge(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(name, labels)


def ready(database: Engine) -> int:
    with database.begin() as tx:
        incarnation = workers.register(tx, "w", "default", "cpu", ["echo@1"])
        workers.heartbeat(tx, incarnation, "ready")
        workers.report_models(tx, incarnation, [ModelRow("echo@1", "ready", 0, 1, "")])
    return incarnation


def age(database: Engine, seconds: float) -> None:
    """All that is in the database happened so much earlier."""
    ago = f"make_interval(secs => {seconds})"
    for table, columns in (
        ("jobs", ("created_at", "started_at")), ("slices", ("not_before", "finished_at"))
    ):  # fmt: skip
        earlier = ", ".join(f"{column} = {column} - {ago}" for column in columns)
        execute(database, f"UPDATE {table} SET {earlier}")


def test_jobs_queues_and_workers_are_counted(
    database: Engine, counted: GaugeCollector, redis_client: "redis.Redis"
) -> None:
    ready(database)
    for _ in range(3):
        store.post(database, *range(4))
    store.settle(database, store.claim(database, room=4))
    age(database, 30)
    busy = {
        ("millrace_entries_total", (("kind", "item"), ("model", "echo@1"))): 10.0,
        ("millrace_model_device_seconds_total", (("model", "echo@1"),)): 5.0,
    }
    report = Report("1", "worker", clock.now().timestamp(), WindowDelta(60, busy, {}), {})
    redis_client.hset(KEY, "1", report.pack())
    counted.run_once()
    assert gauge("millrace_jobs", state="queued") == 2
    assert gauge("millrace_jobs", state="completed") == 1
    assert gauge("millrace_jobs", state="paused") == 0
    assert gauge("millrace_queue_items", model="echo@1") == 8
    assert gauge("millrace_queue_calls", model="echo@1") == 0
    assert 30 <= (gauge("millrace_queue_oldest_seconds", model="echo@1") or 0) < 30 + PATIENCE_S
    assert gauge("millrace_workers", pool="default", state="ready") == 1
    assert gauge("millrace_model_ready_workers", model="echo@1") == 1
    slots = store.ECHO.limits.in_flight
    drain_s = gauge("millrace_predicted_drain_seconds", pool="default", model="echo@1")
    assert drain_s == pytest.approx(8 * 0.5 / slots)
    assert (gauge("millrace_database_bytes") or 0) > 1e6
    execute(database, "UPDATE workers SET state = 'stopped'")
    counted.run_once()
    assert gauge("millrace_workers", pool="default", state="ready") is None


def test_work_that_nobody_ever_did_takes_time(database: Engine, counted: GaugeCollector) -> None:
    store.post(database, *range(1000))
    counted.run_once()
    drain_s = gauge("millrace_predicted_drain_seconds", pool="default", model="echo@1")
    limits = store.ECHO.limits
    one_s = store.ECHO.target_ms / 1000 / limits.most_rows / limits.in_flight
    assert drain_s == pytest.approx(1000 * one_s)


def test_a_job_is_stuck_when_nothing_of_it_ended_for_ten_minutes(database: Engine) -> None:
    begun, waiting = store.post(database, *range(5000)), store.post(database, 1)
    store.settle(database, store.claim(database, room=1))
    age(database, STUCK_AFTER_S + 1)

    def stuck(*unmoved: str) -> dict[str, int]:
        return transact(database, gauges.stuck, STUCK_AFTER_S, unmoved)

    assert store.job(database, begun).state == "running"
    assert store.job(database, waiting).state == "queued"
    assert stuck() == {"echo@1": 1}
    assert stuck("echo@1") == {"echo@1": 2}
    leases = [lease for lease in store.claim(database, room=9999) if lease.job_id == begun]
    assert len(leases) > 1
    store.settle(database, leases[:1])
    assert store.job(database, begun).state == "running"
    assert stuck() == {}


def test_a_death_is_counted_once_also_where_its_look_was_rolled_back(
    database: Engine, counted: GaugeCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deaths() -> float:
        return gauge("millrace_worker_deaths_total", how="crashed") or 0.0

    transact(database, workers.report_death, ready(database), "crashed")
    before = deaths()
    with monkeypatch.context() as patch:
        patch.setattr(gauges, "webhooks", Mock(side_effect=ConnectionError))
        with pytest.raises(ConnectionError):
            counted.run_once()
    assert deaths() == before
    for _ in range(2):
        counted.run_once()
        assert deaths() == before + 1


def test_figures_of_before_a_stall_do_not_outlast_it() -> None:
    assert pause_s(0.001) == MIN_PAUSE_S
    assert pause_s(0.2) == pytest.approx(20)
    assert pause_s(300.0) == 60


def test_a_share_is_what_somebody_had_by_what_was_due() -> None:
    found = shares({"light": 1.0, "heavy": 3.0}, {"light": 2.0, "heavy": 2.0, "absent": 9.0})
    assert found == {"light": 2.0, "heavy": pytest.approx(2 / 3)}
    assert jain(found.values()) == pytest.approx(0.8)
    assert jain([1, 1, 1]) == 1
    assert jain([3, 0, 0]) == pytest.approx(1 / 3)
    assert (shares({"light": 1.0}, {}), jain([])) == ({}, 1)


def test_a_probe_tells_of_a_stall_while_it_lasts(database: Engine) -> None:
    probe = LatencyProbe("database", lambda: transact(database, gauges.write))
    probe.run_once()
    assert 0 < probe.seconds() < PATIENCE_S
    stalled, go_on = threading.Event(), threading.Event()

    def stall() -> None:
        stalled.set()
        go_on.wait()

    stalling = LatencyProbe("database", stall)
    metrics.DATABASE_PROBE_S.set_function(stalling.seconds)
    thread = threading.Thread(target=stalling.run_once)
    thread.start()
    try:
        assert stalled.wait(PATIENCE_S)
        eventually(lambda: (gauge("millrace_database_probe_seconds") or 0) > 0.2)
    finally:
        go_on.set()
        thread.join()
    took_s = stalling.seconds()
    assert took_s > 0.2
    assert stalling.seconds() == took_s


def test_a_database_that_is_away_is_waited_for_ever_longer() -> None:
    away = db.connect("postgresql+psycopg://nobody@127.0.0.1:1/nothing", pool_size=1)
    probe = LatencyProbe("database", lambda: away.connect().close())
    probe.run_once()
    before_s = probe.seconds()
    probe.run_once()
    assert probe.seconds() > before_s > 0


@pytest.fixture
def keepers(settings: Settings, redis_client: "redis.Redis") -> Iterator[list[HistoryWriter]]:
    """Two keepers, in the role that they have."""
    role = db.connect(settings.database_url, pool_size=2, role=db.WORKER)
    yield [HistoryWriter(redis_client, role) for _ in range(2)]
    role.dispose()


def written(database: Engine) -> list[tuple[str, int, float]]:
    """What is known of the first minute: another may have begun."""
    first = "at = (SELECT min(at) FROM figures)"
    query = f"SELECT subject, step, calls_s FROM figures WHERE {first} ORDER BY subject"
    return [tuple(row) for row in fetch(database, query)]


def report(client: "redis.Redis", calls: float) -> None:
    labels = (("class", "interactive"), ("model", "m@1"), ("outcome", "succeeded"))
    delta = WindowDelta(60.0, {("millrace_calls_total", labels): calls}, {})
    one = Report("api_1", "api", float(client.time()[0]), delta, {})
    client.hset(KEY, "api_1", one.pack())


def test_a_minute_is_written_by_the_first_that_looks_and_outlives_redis(
    database: Engine, keepers: list[HistoryWriter], redis_client: "redis.Redis"
) -> None:
    for keeper in keepers:
        keeper.run_once()
    assert written(database) == []  # nobody reports
    for calls, keeper in zip((60.0, 600.0), keepers, strict=True):
        report(redis_client, calls)
        keeper.run_once()
    redis_client.flushdb()
    keepers[1].run_once()
    assert written(database) == [("everything", 60, 1.0), ("model:m@1", 60, 1.0)]
