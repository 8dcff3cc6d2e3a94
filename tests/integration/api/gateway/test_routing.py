"""The router and copies of calls, over a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson
import pytest
from starlette.requests import Request

from api.gateway.fallbacks import fallback_plans
from api.gateway.routing.router import Router
from api.gateway.routing.shadow import AnsweredCall, ShadowCalls, counts_key
from api.gateway.routing.target import Target
from jobs.calls.lanes import Ticket
from jobs.calls.messages import SHADOW, Reply
from jobs.calls.streams.rollout import StreamReader
from jobs.errors import DeadlinePassed, Overloaded
from jobs.intake.idempotency_key import Claim
from jobs.models.registry import Registry
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share
from jobs.models.routing.table import RoutingTable
from jobs.rollouts.records import LaunchRecord
from tests.integration.api.gateway.stage import FAST, LEASE_S, NEW, OLD, Stage
from tests.support.wait import PATIENCE_S, eventually_async

pytestmark = pytest.mark.anyio

CANARY = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 100)})


def request(**headers: str) -> Request:
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "headers": raw})


async def route(
    stage: Stage, routing: RoutingTable, key: str | None = None, **headers: str
) -> Target:
    await stage.gateway.model_statuses.refresh()
    models = Registry([OLD, NEW], routing)
    router = Router(stage.gateway.model_statuses, stage.responses)
    return await router.route(models, "m", request(**headers), "t", key=key)


async def test_a_canary_gets_calls_only_while_a_worker_is_ready_for_it(stage: Stage) -> None:
    stage.serve(OLD, NEW)
    stage.ready(OLD)
    assert await route(stage, CANARY) == Target(OLD, "missed#r", missed=NEW)
    await eventually_async(lambda: stage.lanes(NEW).wanted())
    stage.ready(NEW)
    assert await route(stage, CANARY) == Target(NEW, "canary#r")
    stage.lanes(NEW).announce("w", LEASE_S, ready=False)
    assert await route(stage, CANARY) == Target(OLD, "missed#r", missed=NEW)


async def test_a_retry_under_a_key_goes_to_the_version_that_took_the_first(stage: Stage) -> None:
    stage.open(OLD, NEW)
    before, after = (RoutingTable({("m", "stable"): version}) for version in "12")
    claim = Claim("t", "k", b"-" * 32)

    async def fails() -> bytes:
        raise Overloaded("later")

    assert await route(stage, before, "k") == Target(OLD)
    with pytest.raises(Overloaded):
        await stage.responses.once(claim, 1000, fails)
    assert await route(stage, after, "k") == Target(OLD)
    assert await route(stage, after) == await route(stage, after, "other") == Target(NEW)
    assert await route(stage, CANARY, "canary") == Target(NEW, "canary#r")
    assert await route(stage, CANARY, "canary") == Target(NEW)  # it counts once
    assert await route(stage, before, "canary") == Target(OLD), "it was rolled back"
    assert await route(stage, after, "canary") == Target(OLD)


async def test_a_user_stays_at_a_version(stage: Stage) -> None:
    sticky = Route("m", [Share("1", 50), Share("2", 50)], sticky="user", salt="s")
    routing = RoutingTable(routes={("m", "*"): sticky})
    stage.open(OLD, NEW)
    found = {
        (n, (await route(stage, routing, x_millrace_user=str(n))).model.key)
        for n in range(20)
        for _ in range(5)
    }
    assert len(found) == 20
    assert {key for _, key in found} == {"m@1", "m@2"}


async def test_calls_of_a_cohort_have_a_lane_of_their_own(stage: Stage) -> None:
    stage.open(NEW)
    for cohort in ("", "canary#r", "control#r"):
        stage.unanswered.append(asyncio.create_task(stage.call(NEW, cohort=cohort)))
    lanes = stage.lanes(NEW)
    await eventually_async(lambda: len(lanes.look("s").lanes) == 3)
    for lane in lanes.look("s").lanes:
        [taken] = stage.take(NEW, lane.lane)
        assert taken.cohort == lane.lane.partition("{")[0].removesuffix(":")


async def test_a_call_of_a_rollout_that_is_late_is_recorded_as_failed(stage: Stage) -> None:
    stage.open(NEW)
    for cohort in ("canary#r#ann", "stable#r", ""):
        with pytest.raises(DeadlinePassed):
            await stage.call(NEW, timeout_ms=500, cohort=cohort)
    reader, found = StreamReader(stage.redis, "r"), list[LaunchRecord]()
    await eventually_async(lambda: found.extend(reader.read()) or found)
    [late] = found
    assert (late.lane, late.unit, late.calls, late.failed) == ("canary", "ann", 1, 1)
    assert 0 < late.lasted_ms <= 1000 * PATIENCE_S
    assert not reader.read()


# -- copies


def answered(output: bytes = b"[0.5, 1]") -> AnsweredCall:
    [plan] = fallback_plans(Registry([OLD]), Target(OLD, shadow=NEW), "text", {})
    return AnsweredCall("acme", b'"text"', plan, output)


@pytest.fixture
async def shadows(stage: Stage) -> AsyncIterator[ShadowCalls]:
    """Copies of calls, for a version with a fast worker."""
    stage.serve(OLD, NEW)
    stage.ready(NEW, b16=FAST)
    made = ShadowCalls(stage.gateway, stage.pipe)
    yield made
    await made.stop()


async def counted(stage: Stage, outcome: str) -> None:
    async def is_counted() -> bool:
        found: Any = await asyncio.to_thread(stage.redis.hgetall, counts_key(NEW.key))
        return bool(found == {f"1 {outcome}".encode(): b"1"})

    await eventually_async(is_counted)


@pytest.mark.parametrize(
    ("output", "error", "outcome"),
    [
        (b"[0.5,1]", None, "equal"),
        (b"[0.5001, 1]", None, "close"),
        (b"[0.7, 1]", None, "different"),
        (None, ("engine_error", "it broke"), "failed"),
    ],
)
async def test_a_copy_is_compared_counted_and_billed_to_nobody(
    stage: Stage, shadows: ShadowCalls, output: bytes | None, error: tuple[str, str] | None,
    outcome: str,
) -> None:  # fmt: skip
    lanes = stage.lanes(NEW)
    shadows.copy(answered(), NEW)
    await eventually_async(lambda: lanes.look("s").lanes)
    [taken] = stage.take(NEW)
    assert (taken.cohort, taken.job_class, taken.billed) == (SHADOW, "bulk", False)
    reply = Reply(taken.id, output, error, 1, {}, taken.tenant, "bulk", 7, billed=taken.billed)
    lanes.reply(taken.reply_to, [reply])
    await counted(stage, outcome)
    assert lanes.usage(unfinished=True) == []


async def test_a_copy_is_shed_where_anything_else_waits(stage: Stage, shadows: ShadowCalls) -> None:
    await stage.fill(NEW, 1)
    shadows.copy(answered(), NEW)  # this api knows
    await counted(stage, "shed")


async def test_a_copy_is_shed_where_nobody_is_ready(stage: Stage, shadows: ShadowCalls) -> None:
    stage.lanes(NEW).announce("w", LEASE_S, ready=False)
    await stage.gateway.model_statuses.refresh()
    shadows.copy(answered(), NEW)
    await counted(stage, "shed")


async def test_a_copy_is_shed_where_the_device_is_busy(stage: Stage, shadows: ShadowCalls) -> None:
    lanes = stage.lanes(NEW)
    before_ms = lanes.look("w/0").last_launch_ms
    lanes.take(Ticket("", 0, 0, before_ms, 60_000, 0.0, "pace", "w", "w/0", LEASE_S))
    await stage.gateway.model_statuses.refresh()
    shadows.copy(answered(), NEW)
    await counted(stage, "shed")
    assert not lanes.look("s").lanes


async def test_a_large_call_is_not_copied(stage: Stage, shadows: ShadowCalls) -> None:
    shadows.copy(answered(orjson.dumps("x" * 100_000)), NEW)
    await counted(stage, "shed")
