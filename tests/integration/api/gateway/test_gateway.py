"""The gateway on a real Redis, with workers that only say how long they take: who is let in, in
which way, and what those are told that are not."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import redis
from starlette.requests import ClientDisconnect

from api.gateway.fallbacks import FallbackPlan, fallback_plans
from api.gateway.gateway import CallGateway, InferenceRequest, InferenceResult
from api.gateway.model_status import SHARES
from jobs import clock, ids
from jobs.calls.lanes import TOO_LATE, Ticket
from jobs.calls.messages import Reply
from jobs.calls.profile import Profile, Times
from jobs.calls.redis import RedisLanes
from jobs.errors import DeadlinePassed, NoWorker, Overloaded, TooLate
from jobs.identity import Limit
from jobs.models.model import Degrade, Model
from jobs.models.registry import Registry
from ops.embedded.servers import EmbeddedServers
from tests.support.wait import eventually_async, slowdown

LONG = "one two three four five six seven eight nine ten"  # 12 tokens: in the bucket of 16
FAST, SLOW = Times(8, 20, 10), Times(8, 400, 300)
LEASE_S = 30.0

OnStage = Callable[..., None]

OLD = Model("m", "1", "minilm", target_ms=200)
NEW = Model("m", "2", "minilm", target_ms=200)


@dataclass
class Stage:
    """A gateway, and lanes as workers see them."""

    redis: "redis.Redis"
    gateway: CallGateway
    models: Registry
    gone: "asyncio.Future[None]" = field(default_factory=asyncio.Future)
    unanswered: list["asyncio.Task[Any]"] = field(default_factory=list)

    def lanes(self, model: Model) -> RedisLanes:
        return RedisLanes(self.redis, model.key)

    def ready(self, model: Model, **buckets: Times) -> None:
        """A worker of the model says how long launches of its buckets take: b16 = …"""
        profile = Profile(0.0, {int(name[1:]): times for name, times in buckets.items()})
        lanes = self.lanes(model)
        lanes.announce("w", LEASE_S, profile=profile.pack())
        # It has just launched: a pool that hasn't for long would be probed.
        before_ms = lanes.look("w/0").last_launch_ms
        lanes.take(Ticket("", 0, 0, before_ms, 0.0, 0.0, "pace", "w", "w/0", LEASE_S))

    def call(
        self,
        model: Model,
        value: str = LONG,
        *,
        timeout_ms: int = 10_000,
        of: str = "interactive",
        limits: tuple[Limit, ...] = (),
    ) -> Coroutine[Any, Any, tuple[FallbackPlan, InferenceResult]]:
        asked = InferenceRequest(
            ids.show("call", ids.new()), "t", value, SHARES[of], "standard", 1.0, timeout_ms,
            clock.monotonic() + timeout_ms / 1000, self.gone, limits,
        )  # fmt: skip
        return self.gateway.infer(asked, fallback_plans(self.models, model, value, {}))

    async def answered(
        self,
        model: Model,
        call: Coroutine[Any, Any, tuple[FallbackPlan, InferenceResult]],
        before: bytes = b"[]",
    ) -> FallbackPlan:
        """The way in which a call was answered, by the worker of this model. before: a message
        that comes first."""
        task, lanes = asyncio.create_task(call), self.lanes(model)
        await eventually_async(lambda: lanes.look("s").lanes or task.done())
        assert not task.done(), task.result()
        waiting = lanes.look("s").lanes
        now_ms = lanes.look("s").now_ms
        ticket = Ticket(waiting[0].lane, 8, 0, now_ms, 1, 0, "pace", "w", "s", LEASE_S * 1000)
        [taken] = lanes.take(ticket) or []
        self.redis.rpush(lanes.keys.replies(taken.reply_to), before)
        lanes.reply(taken.reply_to, [Reply(taken.id, b'"output"', None, taken.size, {})])
        way, (output, error, units, _) = await task
        assert (output, error, units) == (b'"output"', None, way.size)
        return way

    async def fill(self, model: Model, rows: int, of: str = "interactive") -> None:
        """So many more calls wait."""
        lanes = self.lanes(model)
        wanted = rows + sum(lane.rows for lane in lanes.look("s").lanes)
        tasks = [asyncio.create_task(self.call(model, of=of)) for _ in range(rows)]
        self.unanswered += tasks
        await eventually_async(
            lambda: (
                any(task.done() for task in tasks)
                or sum(lane.rows for lane in lanes.look("s").lanes) >= wanted
            )
        )
        assert not any(task.done() for task in tasks), tasks


@pytest.fixture
def on_stage(servers: EmbeddedServers, redis_client: "redis.Redis") -> OnStage:
    """Runs a test on an event loop of its own."""

    @asynccontextmanager
    async def stage(*models: Model, most: int) -> AsyncIterator[Stage]:
        gateway = CallGateway(servers.redis.url, most)
        gateway.start()
        made = Stage(redis_client, gateway, Registry(list(models)))
        try:
            yield made
        finally:
            for task in made.unanswered:
                task.cancel()
            await asyncio.gather(*made.unanswered, return_exceptions=True)
            await gateway.stop()

    def run(
        test: Callable[[Stage], Coroutine[Any, Any, None]], *models: Model, most: int = 50
    ) -> None:
        async def on() -> None:
            async with stage(*models, most=most) as made:
                await asyncio.wait_for(test(made), 20 * slowdown())

        asyncio.run(on())

    return run


def test_a_call_that_can_be_in_time_is_let_in_as_asked(on_stage: OnStage) -> None:
    async def test(stage: Stage) -> None:
        stage.ready(NEW, b16=FAST)
        way = await stage.answered(NEW, stage.call(NEW))
        assert (way.model, way.degraded) == (NEW, {})

    on_stage(test, NEW)


@pytest.mark.parametrize("packed", [b"", b"{", b"[]", b'{"of": "a later release"}'])
def test_what_cant_be_read_keeps_no_later_call_from_its_answer(
    on_stage: OnStage, packed: bytes
) -> None:
    async def test(stage: Stage) -> None:
        stage.ready(NEW)
        stage.lanes(NEW).announce("w", LEASE_S, profile=packed)
        await stage.gateway.model_statuses.refresh()
        way = await stage.answered(NEW, stage.call(NEW), before=packed)
        assert way.model == NEW

    on_stage(test, NEW)


def test_a_call_that_would_be_late_is_told_when_to_come_back(on_stage: OnStage) -> None:
    async def test(stage: Stage) -> None:
        stage.ready(NEW, b16=Times(1, 100, 100))
        await stage.fill(NEW, 1)
        with pytest.raises(TooLate, match="about 200 ms; 195 ms") as caught:
            await stage.call(NEW)
        assert 0.02 <= (caught.value.retry_after_s or 0) <= 0.03
        with pytest.raises(TooLate):
            await stage.call(NEW, timeout_ms=50)

    on_stage(test, NEW)


@pytest.mark.parametrize(("of", "most"), [("bulk", 1), ("standard", 2), ("interactive", 3)])
def test_lower_classes_are_refused_first(on_stage: OnStage, of: str, most: int) -> None:
    model = Model("m", "1", "minilm", target_ms=500, degrade=Degrade(shed=True))

    async def test(stage: Stage) -> None:
        stage.ready(model, b16=Times(1, 100, 100))  # 375 ms may be waited for a launch
        await stage.fill(model, most)
        await stage.fill(model, 1, of=of)
        with pytest.raises(TooLate):
            await stage.call(model, of=of)

    on_stage(test, model)


def test_a_call_is_cut_short_before_it_goes_to_the_fallback(on_stage: OnStage) -> None:
    """The times are long, so that a busy machine is late by none of them."""
    degrade = Degrade(truncate=20, fallback="m@1")
    model = Model("m", "2", "minilm", target_ms=20_000, degrade=degrade)
    old = Model("m", "1", "minilm", target_ms=20_000)
    slow = Times(8, 40_000, 30_000)
    text = " ".join(["word"] * 30)

    async def test(stage: Stage) -> None:
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

    on_stage(test, old, model)


def test_a_full_queue_and_no_worker_lead_to_the_fallback_at_once(
    on_stage: OnStage,
) -> None:
    model = Model("m", "2", "minilm", degrade=Degrade(truncate=8, fallback="m@1"))

    async def test(stage: Stage) -> None:
        with pytest.raises(NoWorker, match="m@2") as caught:
            await stage.call(model)
        assert 1.5 <= (caught.value.retry_after_s or 0) <= 2.25
        stage.ready(OLD)
        way = await stage.answered(OLD, stage.call(model))
        assert way.degraded == {"fallback_from": "m@2"}
        stage.ready(model)
        await stage.fill(model, 3)
        way = await stage.answered(OLD, stage.call(model))
        assert way.degraded == {"fallback_from": "m@2"}
        await stage.fill(OLD, 3)
        with pytest.raises(Overloaded, match="m@2"):
            await stage.call(model)

    on_stage(test, OLD, model, most=3)


def test_no_worker_names_the_time_that_loading_takes(on_stage: OnStage) -> None:
    async def test(stage: Stage) -> None:
        stage.lanes(NEW).announce("w", LEASE_S, profile=Profile(load_ms=8000).pack())
        stage.lanes(NEW).announce("w", 0)
        with pytest.raises(NoWorker) as caught:
            await stage.call(NEW)
        assert 8 <= (caught.value.retry_after_s or 0) <= 12

    on_stage(test, NEW)


def test_a_bare_name_is_the_newest_version_that_a_worker_is_ready_for(
    on_stage: OnStage,
) -> None:
    async def test(stage: Stage) -> None:
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

    on_stage(test, OLD, NEW)


def test_a_call_that_a_worker_finds_too_late_is_told_so_and_counts_as_no_answer_in_time(
    on_stage: OnStage,
) -> None:
    async def test(stage: Stage) -> None:
        stage.ready(NEW)
        pool, lanes = await stage.gateway.model_statuses.get(NEW), stage.lanes(NEW)
        pool.margin.record(late=True)
        before_ms = pool.margin.ms
        task = asyncio.create_task(stage.call(NEW))
        waiting = await eventually_async(lambda: lanes.look("s").lanes)
        now_ms = lanes.look("s").now_ms
        needs_ms = 60_000.0
        ticket = Ticket(waiting[0].lane, 8, 0, now_ms, 1, needs_ms, "pace", "w", "s", 1000)
        assert lanes.take(ticket) == []
        _, (output, error, _, _) = await task
        assert (output, error) == (None, list(TOO_LATE))
        assert pool.margin.ms == before_ms

    on_stage(test, NEW)


@pytest.mark.parametrize("leaves", [True, False])
def test_a_call_that_nobody_waits_for_is_taken_back(on_stage: OnStage, leaves: bool) -> None:
    async def test(stage: Stage) -> None:
        stage.ready(NEW)
        call = asyncio.create_task(stage.call(NEW, timeout_ms=10_000 if leaves else 100))
        lanes = stage.lanes(NEW)
        await eventually_async(lambda: lanes.look("s").lanes)
        if leaves:
            stage.gone.set_result(None)
        with pytest.raises(ClientDisconnect if leaves else DeadlinePassed):
            await call
        await eventually_async(lambda: not stage.redis.exists(lanes.keys("calls")))

    on_stage(test, NEW)
