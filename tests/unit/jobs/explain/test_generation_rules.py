"""Rules on models that generate, and on tiers of which one keeps the other waiting: each speaks
just beyond its thresholds, and is silent below."""

from jobs.explain import Diagnosis
from jobs.explain.diagnosis import visible_to_tenants
from jobs.store.monitoring.observations import ModelObservation, Observations
from tests.support.cases import each
from tests.unit.jobs.explain.made import M, Process, found, keeper, launched, worker


def generating(usage: float = 0.5, waiting: float = 0.0, preemptions: float = 0.0) -> Process:
    made = worker().gauge("kv_cache_usage_perc", usage, **M)
    made.gauge("num_requests_running", 8, **M, kind="call")
    made.gauge("num_requests_waiting", waiting, **M, kind="call")
    made.gauge("num_requests_waiting", 1000, **M, kind="item")  # a backlog is no trouble
    return made.count("num_preemptions_total", preemptions, **M, kind="call")


def judged(code: str, cases: list[tuple[Process, bool]]) -> list[Diagnosis]:
    """Diagnoses by the readings at which the rule is to speak; it does so at no other."""
    for (process, says), case in each(cases):
        with case:
            assert (code in found(process)) == says
    return [found(process)[code] for process, says in cases if says]


def test_a_full_cache_matters_where_requests_wait_or_give_way() -> None:
    cases = [
        (generating(0.96, 1, 0), True),
        (generating(0.94, 1, 0), False),
        (generating(0.96, 0, 0), False),
        (generating(0.96, 0, 10), True),
        (generating(0.96, 0, 9), False),
    ]
    for one in judged("kv_cache_full", cases):
        assert one.words.startswith("96 % of the KV blocks of m@1 are in use: 8 sequences run")
    [one] = visible_to_tenants([found(generating(0.99, 3))["kv_cache_full"]])
    assert "wait until others end" in one.words
    assert not one.evidence


def stepping(
    missed: float, with_s: float, without_s: float, steps: float = 100, judged: float = 100
) -> Process:
    made = generating()
    for met, share in (("true", 1 - missed), ("false", missed)):
        labels = {"target": "itl", "met": met}
        made.count("generation_target_total", judged * share, **M, **labels)
    for prefill, seconds in (("true", with_s), ("false", without_s)):
        made.seen("generation_step_seconds", seconds, steps, **M, prefill=prefill)
    return made


def test_prompts_starve_decoding_where_their_steps_are_long() -> None:
    cases = [
        (stepping(0.06, 0.2, 0.1), True),
        (stepping(0.04, 0.2, 0.1), False),
        (stepping(0.06, 0.19, 0.1), False),
        (stepping(0.06, 0.2, 0.1, steps=9), False),
        (stepping(0.06, 0.2, 0.1, judged=19), False),
    ]
    for one in judged("prefill_starves_decode", cases):
        assert "target_itl_ms" in one.advice


def adapting(evictions: float, load_s: float) -> Process:
    made = generating().count("adapter_evictions_total", evictions, **M)
    made.count("adapter_loads_total", evictions + 4, **M, outcome="ready")
    made.seen("adapter_load_seconds", load_s, evictions + 4, **M)
    return made.gauge("adapter_slots_used", 4, **M)


def test_adapters_thrash_where_their_loads_take_much_of_the_time() -> None:
    cases = [(adapting(40, 0.1), True), (adapting(9, 1.0), False), (adapting(40, 0.05), False)]
    for one in judged("adapter_thrash", cases):
        assert one.words == (
            "40 adapters of m@1 left their slot to another in the last minute: more are in use "
            "than the 4 slots of a worker hold; loads of 100 ms take 7 % of its time"
        )
        assert visible_to_tenants([one])[0].evidence == {}


def held(usage: float, waiting: float, **blocks: float) -> Process:
    made = generating(usage, waiting)
    for tenant, its in blocks.items():
        made.gauge("tenant_kv_cache_blocks", its, **M, tenant=tenant)
    return made


def test_a_tenant_hogs_the_cache_where_others_wait_by_blocks_of_all_workers() -> None:
    cases = [
        (held(0.96, 1, acme=50, other=50), True),
        (held(0.96, 1, acme=50, other=49, third=2), False),
        (held(0.94, 1, acme=90, other=10), False),
        (held(0.96, 0, acme=90, other=10), False),
        (held(0.96, 1, acme=90), False),
        (held(0.96, 1, acme=90, other=0), True),
    ]
    for one in judged("kv_cache_hogged", cases):
        assert one.about == "tenant:acme"
        assert visible_to_tenants([one]) == []
    one, two = held(0.96, 1, acme=30, other=60), held(0.9, 0, acme=60)
    two._name = "2"  # noqa: SLF001
    assert found(one, two)["kv_cache_hogged"].evidence["blocks"] == 90


STAGE = {"model": "m@1~prepare"}


def said(devices: float, preparation: float | None, waiting: float = 500.0) -> dict[str, Diagnosis]:
    """Findings where devices and workers that prepare are so busy; None: there are none."""
    told = keeper().gauge("queue_items", waiting, **STAGE)
    told.gauge("predicted_drain_seconds", 90.0, pool="prepare", **STAGE)
    processes = [launched(worker(devices)), told]
    if preparation is not None:
        prepares = Process("worker", "2").gauge("model_slots", 1.0, **STAGE)
        prepares.count("device_busy_seconds_total", preparation * 60.0, device="cpu")
        processes.append(prepares.count("launches_total", 100, reason="full", **STAGE))
    states = {"m@1": ModelObservation({"ready": 1})}
    if preparation is not None:
        states["m@1~prepare"] = ModelObservation({"ready": 1})
    return found(*processes, seen=Observations(models=states))


def test_the_tier_that_keeps_the_other_waiting_is_told_and_none_where_they_are_alike() -> None:
    cases = [
        (0.2, 0.97, "preparation_saturated", "pool prepare"),
        (0.97, 0.2, "preparation_ahead", "more workers in its pool"),
        (0.0, None, "no_prepare_worker", "`millrace prepare`"),
    ]
    for (devices, preparation, code, advice), case in each(cases):
        with case:
            one = said(devices, preparation)
            assert one.keys() == {code}
            assert one[code].about == "model:m@1"
            assert advice in one[code].advice
    for busy in (0.95, 0.3, 0.7):
        assert not said(busy, busy)
    assert not said(devices=0.2, preparation=0.97, waiting=0)
