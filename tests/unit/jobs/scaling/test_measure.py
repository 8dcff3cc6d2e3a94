"""Load of a pool, from what its processes report."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from jobs.calls.profile import Profile, Times
from jobs.models.model import Limits, Model, PreparationModel
from jobs.scaling.measure import ModelQueues, Queue, measure, measure_apis
from jobs.scaling.signals import Signals
from jobs.telemetry.reports.reports import ProcessKind, Report, ReportSet
from jobs.telemetry.reports.window import Recent, Series, WindowDelta
from tests.support.cases import each

MODEL = Model("m", "1", "echo", target_ms=100, limits=Limits(max_batch=32))
PROFILE = Profile(buckets={0: Times(full_rows=32, full_ms=64.0, one_ms=5.0)})  # 2 ms an entry
CHAT = Model("c", "1", "echo_chat")
IDLE = Queue()


def series(name: str, **labels: str) -> Series:
    return f"millrace_{name}", tuple(sorted(labels.items()))


def report(
    kind: ProcessKind,
    recent: Mapping[Series, float] | None = None,
    increases: Mapping[Series, float] | None = None,
    gauges: Mapping[Series, float] | None = None,
    pool: str = "default",
) -> Report:
    delta = WindowDelta(60.0, increases or {}, gauges or {}, Recent(10.0, recent or {}))
    return Report(kind, kind, 0.0, delta, {"pool": pool} if kind == "worker" else {})


def calls(outcome: str, count: float, model: str = "m@1") -> dict[Series, float]:
    return {series("calls_total", model=model, outcome=outcome, **{"class": "standard"}): count}


def met(met: str, count: float) -> dict[Series, float]:
    return {series("call_target_total", model="m@1", met=met): count}


def load(
    *reports: Report,
    queue: Queue | None = IDLE,
    workers: Mapping[str, int] | None = None,
    model: Model = MODEL,
) -> Signals:
    queues = ModelQueues({"m@1": PROFILE}, {} if queue is None else {model.key: queue})
    named = [(model, [model.key, "m:adapter@1"])]
    states = {"ready": 1} if workers is None else workers
    return measure("default", named, ReportSet(reports), queues, states, 7.0)


def test_work_is_device_time_at_full_launches_of_all_calls_but_the_faults_of_clients() -> None:
    busy = {series("model_device_seconds_total", model="m@1"): 59.0}
    found = load(report("api", calls("succeeded", 1000)), report("worker", increases=busy))
    assert found.offered == pytest.approx(100 * 0.002)
    assert (found.used, found.missing) == (found.offered, ())
    found = load(report("api", calls("succeeded", 1000, "m:adapter@1")), report("worker"))
    assert found.offered == pytest.approx(100 * 0.002)
    recent = {**calls("succeeded", 500), **calls("predicted_wait", 400), **calls("no_worker", 100),
              **calls("rate_limited", 9000), **met("true", 480), **met("false", 520)}  # fmt: skip
    found = load(report("api", recent), report("worker"))
    assert found.offered == pytest.approx(100 * 0.002)
    assert found.refused == pytest.approx(0.5)
    assert found.late == pytest.approx(20 / 500)


def test_items_are_a_backlog_and_what_waits_says_how_long_and_until_when() -> None:
    items = {series("queue_items", model="m@1"): 6000.0}
    found = load(report("api"), report("worker"), report("keeper", gauges=items))
    assert (found.used, found.backlog_s, found.items) == (0.0, pytest.approx(12.0), 6000)
    assert found.drain_s == pytest.approx(12.0)
    found = load(report("api"), report("worker"), queue=Queue(12, 0.03))
    assert (found.queue, found.slack_s, found.wait_s) == (12, 0.03, pytest.approx(0.07))


def test_work_is_a_mean_over_the_buckets_in_use_or_the_use_of_a_cache() -> None:
    slow = Times(full_rows=8, full_ms=80.0, one_ms=20.0)
    queues = ModelQueues({"m@1": Profile(buckets={64: PROFILE.buckets[0], 512: slow}, slots=2)}, {})
    lanes = {
        series("lane_entries_total", model="m@1", lane='{"a":1}/64'): 30.0,
        series("lane_entries_total", model="m@1", lane="{}/512"): 10.0,
        series("lane_entries_total", model="m@1", lane="other"): 99.0,
    }
    reports = ReportSet([report("api", calls("succeeded", 1000)), report("worker", None, lanes)])
    found = measure("default", [(MODEL, ["m@1"])], reports, queues, {"ready": 1}, 0.0)
    assert found.offered == pytest.approx(100 * (0.75 * 0.002 + 0.25 * 0.010) / 2)
    state = {
        series("kv_cache_usage_perc", model="c@1"): 0.9,
        series("num_requests_running", model="c@1", kind="call"): 2.0,
        series("num_requests_running", model="c@1", kind="item"): 4.0,
        series("num_requests_waiting", model="c@1", kind="call"): 1.0,
    }
    found = load(report("api"), report("worker", gauges=state), model=CHAT)
    assert found.offered == pytest.approx(0.9 * 3 / 6)


def test_what_is_not_known_is_said_but_a_pool_without_workers_misses_nothing() -> None:
    cases = [
        ((report("worker"),), Queue(), 1, "reports of apis"),
        ((report("api"),), Queue(), 1, "reports of workers (0 of 1 came)"),
        ((report("api"), report("worker", pool="gpu")), Queue(), 1, "0 of 1"),
        ((report("api"), report("worker")), None, 1, "the queues of m@1"),
    ]
    for (reports, queue, ready, missing), case in each(cases):
        with case:
            found = load(*reports, queue=queue, workers={"ready": ready})
            assert missing in ", ".join(found.missing)
    found = load(report("api", calls("no_worker", 100)), workers={"loading": 2})
    assert (found.missing, found.booting, found.used) == ((), 2, pytest.approx(0.02))


def test_pools_of_one_model_have_its_load_by_what_their_workers_ran() -> None:
    both = replace(MODEL, pool=("default", "cpu"))
    asked = report("api", calls("succeeded", 1000))

    def ran(pool: str, entries: float) -> Report:
        done = {series("entries_total", model="m@1", entry="call"): entries}
        return report("worker", increases=done, pool=pool)

    assert load(asked, model=both).offered == pytest.approx(100 * 0.002 / 2)
    found = load(asked, ran("default", 900.0), ran("cpu", 300.0), model=both)
    assert found.offered == pytest.approx(0.75 * 100 * 0.002)


def test_items_are_the_work_of_pools_that_do_not_leave_them_to_cheaper_ones() -> None:
    both = replace(MODEL, pool=("default", "h100"))
    queued = report("keeper", gauges={series("queue_items", model="m@1"): 6000.0})

    def worker(pool: str, *, leaves: bool) -> Report:
        its = report("worker", pool=pool)
        state = {"state": "ready", "leaves_items": leaves}
        return replace(its, details={"pool": pool, "models": {"m@1": state}})

    cheap = worker("default", leaves=False)
    dear = worker("default", leaves=True)
    leaves, takes = worker("h100", leaves=True), worker("h100", leaves=False)
    for two, backlog_s in (((cheap, leaves), 12.0), ((cheap, takes), 6.0), ((dear, takes), 0.0)):
        assert load(queued, *two, model=both).backlog_s == pytest.approx(backlog_s)


PREPARATION = PreparationModel.create(Model("p", "1", "minilm", prepare="pool"))


def prepares(busy_s: float, ready: int = 2) -> Signals:
    """Load of the pool `prepare`, whose workers were busy for so long of ten seconds; an item took
    10 ms."""
    key = PREPARATION.key
    worker = report(
        "worker",
        {series("device_busy_seconds_total", device="cpu"): busy_s},
        {
            series("entries_total", model=key, kind="item"): 100.0,
            series("model_device_seconds_total", model=key): 1.0,
        },
        pool="prepare",
    )
    waiting = {
        series("queue_items", model=key): 6000.0,
        series("queue_oldest_seconds", model=key): 9.0,
    }
    reports = ReportSet([report("api"), worker, worker, report("keeper", gauges=waiting)])
    queues = ModelQueues({}, {key: IDLE})
    return measure("prepare", [(PREPARATION, [key])], reports, queues, {"ready": ready}, 7.0)


def test_preparation_is_used_by_the_time_that_it_takes_and_idle_has_no_backlog() -> None:
    found = prepares(busy_s=9.0)
    assert found.used == pytest.approx(0.9)
    assert (found.offered, found.wait_s, found.missing) == (0.0, 9.0, ())
    assert found.backlog_s == pytest.approx(60.0)
    assert prepares(busy_s=2.0).backlog_s == 0.0
    assert prepares(busy_s=0.0, ready=0).backlog_s > 0


def test_apis_have_the_lag_that_half_of_them_have_and_all_requests() -> None:
    def api(requests: float, **lag_s: float) -> Report:
        recent = {series("http_requests_total", route="/infer"): requests}
        gauges = {series("event_loop_lag_seconds"): one for one in lag_s.values()}
        return report("api", recent, gauges=gauges)

    def found(*reports: Report) -> Signals:
        return measure_apis(ReportSet([*reports, report("worker", calls("x", 9))]), 50.0, 7.0)

    its = found(api(300, lag=0.2), api(700, lag=0.01), api(0, lag=5.0))
    assert (its.ready, its.lag_s, its.requests_s) == (3, 0.2, 100.0)
    assert (its.offered, its.used, its.missing) == (2.0, pytest.approx(2 / 3), ())
    cases = [((0.1, 0.3), 0.3), ((0.1, 0.2, 9.0, 9.0), 9.0), ((0.1, 0.1, 9.0), 0.1), ((), 0.0)]
    for (lags, lag_s), case in each(cases):
        with case:
            assert found(api(0), *(api(0, lag=one) for one in lags)).lag_s == lag_s
    assert found().missing == ("reports of apis",)
