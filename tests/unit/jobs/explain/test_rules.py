"""Each rule speaks just beyond its thresholds, and is silent just below them."""

from dataclasses import replace
from operator import itemgetter

import pytest

from jobs.explain import Diagnosis, Facts, diagnose
from jobs.explain.diagnosis import VISIBLE_TO_TENANTS, visible_to_tenants
from jobs.models.model import Limits
from jobs.store.monitoring.observations import (
    Death,
    LockWait,
    ModelObservation,
    Observations,
    Receiver,
    SickWorker,
)
from jobs.telemetry.reports.reports import ReportSet
from tests.support.cases import each
from tests.unit.jobs.explain.made import (
    MODEL,
    M,
    Process,
    api,
    calls,
    found,
    keeper,
    launched,
    worker,
)

LATE, FINE = 0.06, 0.04
"""Shares of calls that miss the target: over and under what a rule takes for suffering."""


def test_nothing_is_said_of_a_sound_system_and_the_most_severe_comes_first() -> None:
    assert found(calls(late=0.03), launched(worker(busy=0.5)), keeper()) == {}
    seen = Observations(locks=LockWait(3, 5.0, "slices", 7))
    told = keeper().gauge("predicted_drain_seconds", 4000, pool="default", **M)
    said = found(calls(stages={"engine": 0.24}), launched(worker(0.95)), told, seen=seen)
    assert [one.severity for one in said.values()] == ["critical", "warning", "info"]


# -- load


def test_devices_without_time_left_are_saturated_by_the_evidence_of_several_launches() -> None:
    said = found(calls(LATE), launched(worker(0.91)))["device_saturated"]
    assert "91 % busy, and the api's CPUs have time to spare" in said.words
    assert said.severity == "warning"
    assert "device_saturated" not in found(calls(LATE), launched(worker(0.89)))
    assert "device_saturated" not in found(calls(FINE), launched(worker(1.0)))
    assert "device_saturated" in found(calls(LATE), launched(worker(1.0), 10))
    assert "device_saturated" not in found(calls(LATE), launched(worker(1.0), 9))
    assert "device_saturated" not in found(calls(0.5, total=19), launched(worker(1.0)))


def test_on_saturated_devices_full_launches_need_room_and_a_long_drain_is_worth_a_word() -> None:
    for rows, says in ((4, "target_ms"), (30, "larger limits.max_batch lets")):
        advice = found(calls(LATE), launched(worker(0.95), rows=rows))["device_saturated"].advice
        assert says in advice
        assert ("max_batch" in advice) == (rows == 30)
    for seconds, severity in ((3601, ["info"]), (3599, [])):
        told = keeper().gauge("predicted_drain_seconds", seconds, pool="default", **M)
        said = found(launched(worker(0.95)), told)
        assert [one.severity for one in said.values() if one.code == "device_saturated"] == severity


def test_rows_that_workers_found_count_where_the_entry_leaves_them_out() -> None:
    full = {"0": {"full_rows": 900, "full_ms": 9, "one_ms": 1}}
    launches = launched(worker(0.95).status(profile=full), rows=800)
    for limits, rows in ((Limits(max_batch=32), 32), (Limits(), 900)):
        model = replace(MODEL, limits=limits)
        said = found(calls(LATE), launches, model=model)["device_saturated"]
        assert f"of up to {rows} entries: a larger limits.max_batch" in said.advice


def test_calls_wait_for_a_device_or_for_company_by_how_busy_devices_are_if_they_wait_long() -> None:
    def code(busy: float, queue_s: float = 0.3, reason: str = "pace") -> set[str]:
        stages = {"queue": queue_s, "engine": 0.4}
        return {*found(calls(LATE, stages=stages), launched(worker(busy), reason=reason))}

    assert {"waiting_for_device", "waiting_to_batch"} & code(0.61) == {"waiting_for_device"}
    assert {"waiting_for_device", "waiting_to_batch"} & code(0.59) == {"waiting_to_batch"}
    assert not {"waiting_for_device", "waiting_to_batch"} & code(0.61, queue_s=0.26)
    assert not {"waiting_for_device", "waiting_to_batch"} & code(0.59, queue_s=0.26)
    assert "waiting_to_batch" not in code(0.59, reason="full")
    # Others were refused, as where no worker is ready, and count as late.
    for busy, told in ((0.7, "waiting_for_device"), (0.3, "waiting_to_batch")):
        for queue_s, says in ((0.065, True), (0.06, False)):
            late = calls(0.5, stages={"queue": queue_s, "engine": 0.001})
            assert (told in found(late, launched(worker(busy), reason="pace"))) == says


def predicts(alone_ms: float, name: str = "1", one_ms: float = 900) -> Process:
    buckets = {"16": {"one_ms": one_ms, "alone_ms": alone_ms}, "64": {"one_ms": one_ms * 2}}
    return worker(name=name).status(profile=buckets)


def test_a_model_is_slow_or_a_target_below_one_input_alone_is_out_of_reach() -> None:
    said = found(calls(stages={"engine": 0.201}))["slow_model"]
    assert "takes 201 ms on the device, of a target of 250 ms" in said.words
    assert "slow_model" not in found(calls(stages={"engine": 0.199}))
    assert "slow_model" not in found(calls(stages={"engine": 0.5}, total=19))
    said = found(calls(0.9, total=10), predicts(251), predicts(400, "2"))["unreachable_target"]
    assert (
        "one input alone takes 251 ms on the device of m@1, and its target is 250 ms" in said.words
    )
    assert "90 % of 10 missed it" in said.words
    assert "target_ms = 600 or more" in said.advice
    assert "unreachable_target" not in found(calls(0.9), predicts(249), predicts(400, "2"))
    assert "unreachable_target" not in found(calls(0.0), predicts(251))
    assert "unreachable_target" not in found(calls(0.9), worker())
    stages = {"engine": 0.3}
    assert "slow_model" in found(calls(0.9, stages=stages), predicts(200))
    assert "slow_model" not in found(calls(0.9, stages=stages), predicts(300))


def launching(items: int, ago_s: float, slices: float = 2) -> Process:
    """A worker with slices, and a launch that began before its report, at 0 s."""
    launch = {"since": -ago_s, "items": items, "rows": items}
    return worker().gauge("slices_in_hand", slices, **M).status(launches=[launch])


def waiting(claimable_s: float = 0.0) -> Process:
    told = keeper().gauge("queue_items", 40, **M)
    return told.gauge("queue_oldest_seconds", claimable_s, **M)


def test_one_worker_has_all_that_is_left_of_a_slow_model_and_is_not_soon_done() -> None:
    said = found(launching(32, 11), worker(name="2"), waiting())["one_worker"]
    assert said.severity == "warning"
    assert "worker 1 has all that is left of m@1: 40 items in 2 slices, 32 of them" in said.words
    assert "1 other worker that is ready for it has nothing to do" in said.words
    alone = found(launching(32, 11), waiting())["one_worker"]
    assert alone.severity == "info"
    assert "more workers in its pool take part" in alone.advice
    another_slice = worker(name="2").gauge("slices_in_hand", 1, **M)
    cases = [
        ("a launch soon over", launching(32, 9), worker(name="2"), waiting()),
        ("one item", launching(1, 11), worker(name="2"), waiting()),
        ("more to claim", launching(32, 11), worker(name="2"), waiting(claimable_s=1)),
        ("another has a slice", launching(32, 11), another_slice, waiting()),
    ]
    for (_, *processes), case in each(cases, name=itemgetter(0)):
        with case:
            assert "one_worker" not in found(*processes)


def test_workers_that_the_autoscaler_asks_for_in_vain_and_reclaims_of_spot_workers_are_told() -> (
    None
):
    short = keeper().gauge("pool_overdue_replicas", 2, pool="gpu")
    said = found(short.gauge("pool_overdue_replicas", 0, pool="cpu"))["pool_short"]
    assert said.words.startswith("2 workers of pool gpu that the autoscaler asked for")
    assert "pool_short" not in found(keeper().gauge("pool_overdue_replicas", 0, pool="gpu"))
    by = keeper().gauge("pool_reclaimed_workers", 3, pool="gpu", notice="aws")
    said = found(by)["spot_reclaimed"]
    assert said.words.startswith("3 machines of spot workers of pool gpu reclaimed in the last")
    assert said.words.endswith("hour: 3 by aws")
    assert said.severity == "info"
    by = by.gauge("pool_reclaimed_workers", 1, pool="gpu", notice="silence")
    by = by.gauge("pool_reclaimed_workers", 1, pool="other", notice="file")
    said = found(by)["spot_reclaimed"]
    assert said.words.endswith("last hour: 3 by aws, 1 without notice")
    assert (said.about, said.severity) == ("pool:gpu", "warning")


def test_calls_that_are_refused_are_overload_which_says_how_much_of_the_pool_calls_use() -> None:
    only = api().count("calls_total", 100, outcome="predicted_wait", **M, class_="standard")
    said = found(only, keeper().gauge("pool_capacity_used", 1.25, pool="default"))["overload"]
    assert "calls bring 125 % of the work that its pool can do" in said.words
    assert said.evidence["capacity_used"] == 1.25

    def refused(times: float, total: float = 300) -> dict[str, Diagnosis]:
        return found(calls(total=total).count("calls_total", times, outcome="predicted_wait", **M))

    assert "refused (5 of 305, most as predicted_wait)" in refused(5)["overload"].words
    assert "overload" not in refused(4)
    assert "overload" not in refused(5, total=1000)


def priced(name: str, pool: str, price: float, *, leaves: bool) -> Process:
    """A worker that takes 10 ms for an item of the model."""
    times = {"full_rows": 1, "full_ms": 10.0, "one_ms": 10.0}
    its = {"state": "ready", "profile": {"0": times}, "slots": 1, "leaves_items": leaves}
    made = worker(name=name)
    return made.about(pool=pool, price=price, state="ready", models={"m@1": its})


def test_items_that_wait_for_cheaper_workers_wait_on_purpose() -> None:
    def says(items: float, *, leaves: bool = True) -> Diagnosis | None:
        both = priced("1", "l4", 1.0, leaves=False), priced("2", "h100", 3.0, leaves=leaves)
        return found(*both, keeper().gauge("queue_items", items, **M)).get("cheaper_workers")

    finding = says(4000)
    assert finding
    assert (
        "4,000 items of m@1 wait for pool l4, where an item costs 33 % of what it does in pool "
        "h100: about 40 s of work" in finding.words
    )
    assert (finding.severity, finding.evidence["drain_s"]) == ("info", pytest.approx(40))
    assert "MILLRACE_CHEAPER_S" in finding.advice
    assert not says(0)
    assert not says(4000, leaves=False)


# -- lanes


def lanes(process: Process, count: int, entries: float = 10, wait_s: float = 1.0) -> Process:
    for n in range(count):
        process.count("lane_entries_total", entries, lane=f"{n}/16", **M)
        process.count("lane_launches_total", entries, lane=f"{n}/16", **M)
        process.count("lane_wait_seconds_total", wait_s, lane=f"{n}/16", **M)
    return process


def test_entries_over_many_lanes_are_fragmented() -> None:
    def scattered(count: int = 14, rows: float = 1.3, late: float = LATE) -> dict[str, Diagnosis]:
        process = lanes(launched(worker(busy=0.3, slots=2), rows=rows), count)
        return found(calls(late, stages={"queue": 0.3, "engine": 0.1}), process)

    words = scattered()["fragmented_lanes"].words
    assert "devices are 30 % busy and p99 rises to" in words
    assert "14 lanes of m@1 share 2 launches at a time, mean launch 1.3 of 32" in words
    assert "fragmented_lanes" in scattered(4)
    assert "fragmented_lanes" not in scattered(3)
    assert "fragmented_lanes" not in scattered(rows=2.0)
    assert "fragmented_lanes" not in scattered(late=FINE)


def test_one_lane_that_has_most_of_the_waiting_is_hot() -> None:
    def hot(wait_s: float, entries: float = 40, others: int = 2) -> dict[str, Diagnosis]:
        process = lanes(launched(worker()), others, wait_s=5.0)
        process.count("lane_entries_total", entries, lane="hot/64", **M)
        process.count("lane_wait_seconds_total", wait_s, lane="hot/64", **M)
        process.count("lane_launches_total", 20, lane="hot/64", **M)
        return found(calls(LATE), process)

    words = hot(16)["hot_lane"].words
    assert "the lane hot/64 of m@1 has 62 % of the waiting of its 3 lanes: 67 % of the" in words
    assert "400 ms each, 2.0 a launch of up to 32" in words
    assert "hot_lane" not in hot(14)
    assert "hot_lane" not in hot(16, entries=19)
    assert "hot_lane" not in hot(16, others=1)
    assert "hot_lane" not in hot(16, entries=400)  # nobody of them waits long


def test_padding_and_launches_that_take_what_nobody_predicted_are_told() -> None:
    def padded(share: float, busy: float = 0.6) -> dict[str, Diagnosis]:
        process = launched(worker(busy)).count("launch_padded_units_total", 1000, **M)
        return found(process.count("launch_units_total", 1000 * (1 - share), **M))

    assert "51 % of what launches of m@1 compute is padding" in padded(0.51)["padding_waste"].words
    assert "padding_waste" not in padded(0.49)
    assert "padding_waste" not in padded(0.9, busy=0.49)
    for ratio, says in ((1.7, True), (1.2, False), (0.85, False), (0.4, True)):
        process = launched(worker()).seen("launch_prediction_ratio", ratio, 20, **M)
        assert ("misprediction" in found(process)) == says


# -- models


def test_nobody_serves_what_calls_or_items_wait_for() -> None:
    def said(waiting: float, **states: int) -> dict[str, Diagnosis]:
        told = keeper().gauge("queue_items", waiting, **M)
        model = ModelObservation(states, "no such file")
        return found(told, seen=Observations(models={"m@1": model}))

    assert said(3)["no_worker"].severity == "critical"
    assert said(0) == {}
    assert said(3, ready=1) == {}
    assert {*said(3, loading=1)} == {"model_loading"}
    assert {*said(0, loading=1)} == set()
    refused = api().count("calls_total", 7, outcome="no_worker", **M)
    seen = Observations(models={"m@1": ModelObservation({"loading": 1})})
    loading = found(refused, seen=seen)["model_loading"]
    assert loading.severity == "warning"
    assert "7 calls were refused" in loading.words
    failed = said(0, failed=1)["model_failed"]
    assert (failed.severity, failed.about) == ("critical", "model:m@1")
    assert "no such file" in failed.words
    assert said(0, failed=1, ready=1)["model_failed"].severity == "warning"
    assert "no_worker" in found(api().count("calls_total", 1, outcome="no_worker", **M))


def test_a_model_whose_workers_are_all_drained_waits_for_an_operator() -> None:
    def said(
        waiting: float, drained: tuple[int, ...] = (7,), **states: int
    ) -> dict[str, Diagnosis]:
        told = keeper().gauge("queue_items", waiting, **M)
        model = ModelObservation(states, drained=drained)
        return found(told, seen=Observations(models={"m@1": model}))

    finding = said(3, draining=1)["worker_drained"]
    assert (finding.severity, finding.about) == ("critical", "model:m@1")
    assert "an operator drained 1 worker that has it (id 7)" in finding.words
    assert "3 items" in finding.words
    assert finding.advice.startswith("`millrace worker resume 7`")
    assert {*said(3, draining=1)} == {*said(3, absent=1)} == {"worker_drained"}
    assert said(0, draining=1)["worker_drained"].severity == "warning"
    assert said(0, absent=1) == {}  # nobody asks for it
    assert said(3, draining=1, ready=1) == {}
    assert {*said(3, draining=1, absent=1)} == {"no_worker"}  # another could load it
    assert {*said(3, drained=(), draining=1)} == {"no_worker"}  # a worker that leaves
    assert "2 workers that have it (id 7, 9)" in said(3, (7, 9), draining=2)["worker_drained"].words


def test_a_model_fails_and_its_jobs_are_stuck() -> None:
    def failing(times: float) -> dict[str, Diagnosis]:
        process = worker().count("items_total", 100 - times, outcome="succeeded", **M)
        process.count("items_total", times, outcome="failed", **M)
        return found(process.count("item_errors_total", times, code="engine_error", **M))

    assert "0 calls, 5 items), most as engine_error" in failing(5)["model_fails"].words
    assert "model_fails" not in failing(4)
    many = worker().count("items_total", 200, outcome="succeeded", **M)
    assert found(many.count("item_errors_total", 6, code="engine_error", **M)) == {}
    assert found(keeper().gauge("jobs_stuck", 1, **M))["stuck_jobs"].about == "model:m@1"
    assert found(keeper().gauge("jobs_stuck", 0, **M)) == {}


# -- tenants


def used(process: Process, tenant: str, entries: float, units: float) -> Process:
    process.count("tenant_entries_total", entries, tenant=tenant, kind="call", **M)
    process.count("tenant_units_total", units, tenant=tenant, **M)
    return process.count("tenant_device_seconds_total", units / 1000, tenant=tenant, **M)


def test_a_few_long_texts_of_one_tenant() -> None:
    def burst(entries: float, units: float, late: float = LATE) -> dict[str, Diagnosis]:
        process = used(used(launched(worker()), "alice", entries, units), "bob", 90, 900)
        return found(calls(late), process)

    said = burst(10, 3000)["long_texts"]
    assert said.about == "tenant:alice"
    assert "30 times as long as others' (300 units against 10): 10 % of the entries" in said.words
    assert "77 % of the work, 77 % of the device's time" in said.words
    assert "long_texts" in burst(80, 3300)
    assert "long_texts" not in burst(80, 3100)  # less than four times as long
    assert "long_texts" not in burst(10, 890)  # less than half of the work
    assert "long_texts" not in burst(91, 9000)  # most of the entries too
    assert "long_texts" not in burst(4, 3000)
    assert "long_texts" not in burst(10, 3000, late=FINE)


def test_a_tenant_with_work_gets_too_little() -> None:
    def shares(least: float, device_s: float = 6) -> dict[str, Diagnosis]:
        told = keeper().gauge("tenant_share_ratio", least, tenant="bob")
        told.gauge("tenant_share_ratio", 1.4, tenant="alice")
        process = used(worker(), "alice", 10, 1000 * device_s)
        return found(told, process)

    assert shares(0.49)["starved_tenant"].about == "tenant:bob"
    assert "starved_tenant" not in shares(0.51)
    assert "starved_tenant" not in shares(0.1, device_s=4)


def test_no_tenant_is_told_of_another() -> None:
    process = used(used(launched(worker(0.95)), "alice", 10, 3000), "bob", 90, 900)
    asked = calls(LATE, total=4321).count("calls_total", 1234, outcome="overloaded", **M)
    seen = Observations(locks=LockWait(2, 5.0, "slices", 4711))
    said = found(asked, lanes(process, 9), seen=seen)
    assert {"long_texts", "overload", "device_saturated", "database_stalls"} <= {*said}
    told = visible_to_tenants(said.values())
    assert {"overload", "device_saturated", "database_stalls"} <= {one.code for one in told}
    for secret in ("alice", "bob", "4321", "1234", "5,555", "5555", "4711", "slices", "0/16"):
        assert secret not in repr(told)
    secrets = {"long_texts", "starved_tenant", "hot_lane", "dying_worker", "slow_webhook_receiver"}
    assert not VISIBLE_TO_TENANTS.keys() & secrets


# -- workers and upstreams


def test_a_death_is_an_accident_and_two_are_a_cause_also_without_the_database() -> None:
    deaths = (Death(12, "default", "cpu", "crashed", 3.0), Death(11, "default", "cpu", "hung", 60))
    once = found(seen=Observations(deaths=deaths[:1]))["dying_worker"]
    twice = found(seen=Observations(deaths=deaths, suspects=2))["dying_worker"]
    assert (once.severity, once.about) == ("warning", "worker:12")
    assert twice.severity == "critical"
    assert "ended 3 s ago (crashed); 2 deaths in ten minutes: 1 crashed, 1 hung" in twice.words
    assert "2 slices run alone" in twice.words
    said = found(keeper().count("worker_deaths_total", 2, how="silent"))["dying_worker"]
    assert (said.about, said.severity) == ("workers", "critical")
    assert "machine or its network" in said.advice


def test_a_server_that_limits_us_and_a_device_that_failed_are_named() -> None:
    again = SickWorker(12, "gpu", "cuda:1", "CUDA error: unknown error", False, 3.0)
    once = found(seen=Observations(sick=(again,)))["sick_device"]
    assert (once.severity, once.about) == ("warning", "worker:12")
    assert "(cuda:1) failed 3 s ago: CUDA error: unknown error; it starts again" in once.words
    out = SickWorker(14, "gpu", "cuda:1", "CUDA error: unknown error", True, 90.0)
    last = found(seen=Observations(sick=(out, again)))["sick_device"]
    assert (last.severity, last.about) == ("critical", "worker:14")
    assert "1 worker (id 14) quarantined; 1 more failure in ten minutes" in last.words
    assert "`millrace worker resume 14`" in last.advice

    def asked(limited: float, closed: float = 0) -> dict[str, Diagnosis]:
        process = worker().count("upstream_requests_total", 100, upstream="u", outcome="succeeded")
        process.count("upstream_requests_total", limited, upstream="u", outcome="rate_limited")
        process.gauge("upstream_limit", 3, upstream="u")
        return found(process.gauge("upstream_breaker_open", closed, upstream="u"))

    assert asked(6)["upstream_limited"].severity == "warning"
    assert "it is sent 3 requests at a time" in asked(6)["upstream_limited"].words
    assert "upstream_limited" not in asked(5)
    assert asked(0, closed=1)["upstream_limited"].severity == "critical"


# -- parts


def test_a_database_that_stalls_says_so_in_four_ways() -> None:
    def said(**more: float) -> dict[str, Diagnosis]:
        locks = LockWait(2, more.get("lock_s", 0), "slices", 4711)
        told = keeper().gauge("database_probe_seconds", more.get("probe_s", 0.01))
        told.seen("database_transaction_seconds", more.get("slow_s", 0.01), more.get("times", 20))
        unanswered_s = more.get("unanswered_s", 0.0)
        return found(told, seen=Observations(locks=locks), unanswered_s=unanswered_s)

    assert said() == said(lock_s=0.9) == said(probe_s=0.9) == said(slow_s=0.7, times=19) == {}
    lock = said(lock_s=1.1)["database_stalls"]
    assert "the longest for 1.1 s on slices, which process 4711 of PostgreSQL holds" in lock.words
    assert "pg_terminate_backend(4711)" in lock.advice
    assert "smallest write took 1.1 s" in said(probe_s=1.1)["database_stalls"].words
    assert "hasn't answered for 3 s" in said(unanswered_s=3)["database_stalls"].words
    slow = said(slow_s=0.9)["database_stalls"]
    assert slow.severity == "warning"
    assert "one in twenty transactions takes" in slow.words
    assert lock.severity == "critical"


def test_redis_or_the_api_itself_is_slow() -> None:
    away = found(redis_unanswered_s=2.0)["redis_slow"]
    assert away.severity == "critical"
    assert "Redis hasn't answered for 2 s: calls are refused" in away.words
    assert "redis_slow" in found(keeper().gauge("redis_probe_seconds", 0.11))
    assert found(keeper().gauge("redis_probe_seconds", 0.09)) == {}
    assert "redis_slow" in found(api().seen("redis_seconds", 0.24, 50))
    assert found(api().seen("redis_seconds", 0.24, 49)) == {}
    late = found(api().gauge("event_loop_lag_seconds", 0.11))["api_busy"].words
    assert late == "the api is busy: its event loop was 110 ms late"
    assert found(api().gauge("event_loop_lag_seconds", 0.09)) == {}
    assert "api_busy" in found(calls(stages={"gateway": 0.06, "engine": 0.05}))
    assert found(calls(stages={"gateway": 0.06, "engine": 0.07})) == {}
    assert found(calls(stages={"gateway": 0.04, "engine": 0.01})) == {}


def test_a_keeper_is_absent_or_fails_again_and_again() -> None:
    def alone(seconds: float) -> set[str]:
        reading = ReportSet([Process("api", seconds=seconds).report()])
        return {one.code for one in diagnose(Facts.from_reports(reading))}

    assert alone(11) == {"keeper_absent"}
    assert alone(9) == set()
    [only] = diagnose(Facts.from_reports(ReportSet(())))
    assert (only.code, only.severity) == ("no_reports", "info")

    def failing(times: float, done: float) -> dict[str, Diagnosis]:
        told = keeper().count("keeper_runs_total", times, service="reap", outcome="failed")
        return found(told.count("keeper_runs_total", done, service="reap", outcome="done"))

    assert "service reap failed 3 of 6 times" in failing(3, 3)["keeper_failing"].words
    assert failing(2, 0) == failing(3, 4) == {}


def test_who_gets_webhooks_is_slow_or_refuses_and_is_not_called_slow_where_it_is_away() -> None:
    receiver = Receiver("hooks.example", 7, 9, 40.0, "no answer within 15 s")

    def tried(seconds: float, failed: float, good: float, oldest_s: float = 0) -> set[str]:
        told = keeper().count("webhook_attempts_total", failed, outcome="failed")
        told.count("webhook_attempts_total", good, outcome="delivered")
        told.seen("webhook_seconds", seconds, failed + good)
        told.gauge("webhook_oldest_seconds", oldest_s)
        said = found(told, seen=Observations(receivers=(receiver,)))
        for one in said.values():
            assert "wait for hooks.example (no answer within 15 s)" in one.words
        return {*said}

    slow = {"slow_webhook_receiver"}
    assert tried(2.1, 0, 3) == slow
    assert tried(1.9, 0, 3) == tried(9.0, 0, 2) == set()
    assert tried(0.1, 2, 2) == slow
    assert tried(0.1, 2, 3) == set()
    assert tried(0.1, 0, 1, oldest_s=31) == slow
    assert tried(0.1, 0, 1, oldest_s=29) == set()
    told = keeper().count("webhook_attempts_total", 4, outcome="failed")
    one = found(told.seen("webhook_seconds", 0.016, 4))["slow_webhook_receiver"]
    assert one.words.startswith("webhooks fail: a try takes 16 ms, 100 % of 4 failed")
    assert "oldest" not in one.words
    assert "reachable" in one.advice
