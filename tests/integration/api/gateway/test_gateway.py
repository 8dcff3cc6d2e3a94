"""The gateway on a real Redis, with workers that only say how long they take: who is let in, in
which way, and what those are told that are not."""

import asyncio
import gc
import weakref
from dataclasses import replace

import pytest
from starlette.requests import ClientDisconnect

from jobs.calls.lanes import TOO_LATE
from jobs.calls.profile import Profile, Times
from jobs.errors import DeadlinePassed, NoWorker, Overloaded, TooLate, Unavailable
from jobs.models.model import Degrade, Model
from tests.integration.api.gateway.stage import FAST, LEASE_S, NEW, OLD, Stage
from tests.support.wait import eventually_async

pytestmark = pytest.mark.anyio


async def test_a_call_that_can_be_in_time_is_let_in_as_asked(stage: Stage) -> None:
    stage.open(NEW, b16=FAST)
    way = await stage.answered(NEW, stage.call(NEW))
    assert (way.model, way.degraded) == (NEW, {})


@pytest.mark.parametrize("packed", [b"", b"{", b"[]", b'{"of": "a later release"}'])
async def test_what_cant_be_read_keeps_no_later_call_waiting(stage: Stage, packed: bytes) -> None:
    stage.open(NEW)
    stage.lanes(NEW).announce("w", LEASE_S, profile=packed)
    await stage.gateway.model_statuses.refresh()
    assert (await stage.answered(NEW, stage.call(NEW), before=packed)).model == NEW


async def test_a_call_whose_answer_is_behind_many_others_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An api that was stopped or starved for a while has them to read first."""
    monkeypatch.setattr("api.gateway.gateway._WATCH_S", 0.001)
    stage.open(NEW)
    await stage.answered(NEW, stage.call(NEW), times=3000)


async def test_a_call_redis_lost_is_refused(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.gateway.gateway._WATCH_S", 0.001)
    stage.open(NEW)
    await stage.fill(NEW, 1)
    stage.redis.delete(stage.lanes(NEW).keys("calls"))
    with pytest.raises(Unavailable, match="lost with Redis"):
        await stage.unanswered[0]


async def test_a_call_that_would_be_late_is_told_when_to_come_back(stage: Stage) -> None:
    stage.open(NEW, b16=Times(1, 100, 100))
    await stage.fill(NEW, 1)
    with pytest.raises(TooLate, match="about 200 ms; 195 ms") as caught:
        await stage.call(NEW)
    assert 0.02 <= (caught.value.retry_after_s or 0) <= 0.03
    with pytest.raises(TooLate):
        await stage.call(NEW, timeout_ms=50)


async def test_the_time_that_a_call_has_waited_in_the_api_is_taken_off_its_target(
    stage: Stage,
) -> None:
    model = Model("m", "1", "minilm", target_ms=60_000)
    stage.serve(model)
    stage.ready(model, b16=Times(1, 20_000, 20_000))  # about 38 s may be waited for a launch
    stage.unanswered.append(asyncio.create_task(stage.call(model, waited_s=10)))
    await eventually_async(lambda: stage.lanes(model).look("s").lanes)
    lanes = stage.lanes(model).look("s")
    assert lanes.lanes[0].due_ms - lanes.now_ms < 51_000
    with pytest.raises(TooLate, match="about 40000 ms; 20000 ms"):
        await stage.call(model, waited_s=40)


@pytest.mark.parametrize(("of", "waiting"), [("bulk", 1), ("standard", 2), ("interactive", 3)])
async def test_lower_classes_are_refused_first(stage: Stage, of: str, waiting: int) -> None:
    model = Model("m", "1", "minilm", target_ms=500, degrade=Degrade(shed=True))
    stage.serve(model)
    stage.ready(model, b16=Times(1, 100, 100))  # 375 ms may be waited for a launch
    await stage.fill(model, waiting)
    await stage.fill(model, 1, of=of)
    with pytest.raises(TooLate):
        await stage.call(model, of=of)


async def test_a_call_is_cut_short_before_it_goes_to_the_fallback(stage: Stage) -> None:
    """The times are long, so that a busy machine is late by none of them."""
    degrade = Degrade(truncate=20, fallback="m@1")
    model = Model("m", "2", "minilm", target_ms=20_000, degrade=degrade)
    old = Model("m", "1", "minilm", target_ms=20_000)
    slow = Times(8, 40_000, 30_000)
    text = " ".join(["word"] * 30)
    stage.serve(old, model)
    stage.ready(old, b32=FAST)
    stage.ready(model, b32=Times(1, 15_000, 15_000), b24=Times(1, 5000, 1000))
    way = await stage.answered(model, stage.call(model, text, timeout_ms=10_000))
    assert (way.degraded, way.size) == ({"truncated_to": 20}, 20)
    stage.ready(model, b32=slow, b24=slow)
    await stage.gateway.model_statuses.refresh()
    way = await stage.answered(old, stage.call(model, text, timeout_ms=10_000))
    assert (way.model, way.degraded) == (old, {"fallback_from": "m@2"})
    stage.ready(old, b32=slow)
    await stage.gateway.model_statuses.refresh()
    with pytest.raises(TooLate, match="m@2 would take about 30000 ms; 9500 ms"):
        await stage.call(model, text, timeout_ms=10_000)


@pytest.mark.parametrize("most", [3])
async def test_a_full_queue_and_no_worker_lead_to_the_fallback_at_once(stage: Stage) -> None:
    model = Model("m", "2", "minilm", degrade=Degrade(truncate=8, fallback="m@1"))
    stage.serve(OLD, model)
    with pytest.raises(NoWorker, match="m@2") as caught:
        await stage.call(model)
    assert 1.5 <= (caught.value.retry_after_s or 0) <= 2.25
    stage.ready(OLD)
    assert (await stage.answered(OLD, stage.call(model))).degraded == {"fallback_from": "m@2"}
    stage.ready(model)
    await stage.fill(model, 3)
    assert (await stage.answered(OLD, stage.call(model))).degraded == {"fallback_from": "m@2"}
    await stage.fill(OLD, 3)
    with pytest.raises(Overloaded, match="m@2"):
        await stage.call(model)


async def test_no_worker_names_the_time_that_loading_takes(stage: Stage) -> None:
    stage.serve(NEW)
    stage.lanes(NEW).announce("w", LEASE_S, profile=Profile(load_ms=8000).pack())
    stage.lanes(NEW).announce("w", 0)
    with pytest.raises(NoWorker) as caught:
        await stage.call(NEW)
    assert caught.value.detail == "no worker is ready for m@2"
    assert 8 <= (caught.value.retry_after_s or 0) <= 12
    sleeper = replace(NEW, on_demand=True)
    stage.serve(sleeper)
    with pytest.raises(NoWorker, match="m@2: it is loaded on demand, about 8 s"):
        await stage.call(sleeper)
    assert stage.gateway.model_statuses.loading_s(NEW.key) < 0
    stage.lanes(NEW).announce_loading(3600)

    async def told_so() -> bool:
        with pytest.raises(NoWorker) as caught:
            await stage.call(sleeper)
        return caught.value.detail == "no worker is ready for m@2: loading, about 8 s"

    await eventually_async(told_so)  # within a second it looks again
    assert stage.gateway.model_statuses.loading_s(NEW.key) > 0


async def test_a_bare_name_is_the_newest_version_that_a_worker_is_ready_for(stage: Stage) -> None:
    stage.serve(OLD, NEW)

    async def chosen() -> Model:
        await stage.gateway.model_statuses.refresh()
        return await stage.gateway.model_statuses.choose(stage.models.versions("m"))

    assert await chosen() == NEW
    stage.ready(OLD)
    assert await chosen() == OLD
    stage.ready(NEW)
    assert await chosen() == NEW
    stage.lanes(NEW).announce("w", LEASE_S, ready=False)
    assert await chosen() == OLD
    assert await stage.gateway.model_statuses.choose(stage.models.versions("m@2")) == NEW


async def test_a_call_that_a_worker_finds_too_late_is_told_so_and_counts_as_no_answer_in_time(
    stage: Stage,
) -> None:
    stage.open(NEW)
    pool, lanes = await stage.gateway.model_statuses.get(NEW), stage.lanes(NEW)
    pool.margin.record(late=True)
    before_ms = pool.margin.ms
    task = asyncio.create_task(stage.call(NEW))
    await eventually_async(lambda: lanes.look("s").lanes)
    assert stage.take(NEW, needs_ms=60_000.0) == []
    _, (output, error, _, _) = await task
    assert (output, error) == (None, list(TOO_LATE))
    assert pool.margin.ms == before_ms


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_call_that_nobody_waits_for_is_taken_back(stage: Stage, leaves: bool) -> None:
    stage.open(NEW)
    call = asyncio.create_task(stage.call(NEW, timeout_ms=60_000 if leaves else 100))
    lanes = stage.lanes(NEW)
    await eventually_async(lambda: lanes.look("s").lanes or call.done())
    if leaves:
        stage.gone.set_result(None)
    with pytest.raises(ClientDisconnect if leaves else DeadlinePassed):
        await call
    await eventually_async(lambda: not stage.redis.exists(lanes.keys("calls")))


class _Input(str):  # unlike a text, it can be referred to weakly
    pass


@pytest.mark.parametrize("refused", [True, False])
async def test_the_input_of_a_call_that_failed_waits_for_no_garbage_collector(
    stage: Stage, refused: bool
) -> None:
    stage.open(NEW, **({"b16": Times(1, 100, 100)} if refused else {}))
    await stage.fill(NEW, 1 if refused else 0)
    value = _Input("one two three four five six seven eight nine ten")
    alive = weakref.ref(value)
    call = stage.call(NEW, value, timeout_ms=60_000 if refused else 100)
    del value
    gc.disable()
    try:
        with pytest.raises(TooLate if refused else DeadlinePassed):
            await call
        del call
        await eventually_async(lambda: alive() is None, timeout_s=10)
    finally:
        gc.enable()


async def test_a_changed_entry_counts_from_the_next_call_on_however_many_there_are(
    stage: Stage,
) -> None:
    """It was admitted by the old target as long as calls kept coming."""
    statuses, changed = stage.gateway.model_statuses, replace(NEW, target_ms=60_000)
    stage.open(NEW, b16=FAST)
    strict = (await statuses.get(NEW)).terms(16, 100_000, 1.0)
    assert strict.allowed_ms < 200
    await statuses.refresh()
    status = await statuses.get(changed)
    assert status.terms(16, 100_000, 1.0).allowed_ms > 50_000
    await statuses.refresh()
    assert (await statuses.get(replace(changed))).terms(16, 100_000, 1.0).allowed_ms > 50_000
    assert (await statuses.get(NEW)).terms(16, 100_000, 1.0) == strict
