"""What an api process keeps of calls that ended, in a real Redis."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis
from starlette.requests import ClientDisconnect

from api.gateway.call_log import CallLog, outcome_of
from api.gateway.redis_pipeline import RedisPipeline
from api.gateway.requests import AdmissionAttempt, InferenceRequest
from jobs import clock, ids
from jobs.calls.lanes import Rejection, Terms
from jobs.calls.records import RETENTION_S, CallRecord, record_key
from jobs.errors import Fault, MillraceError, NoWorker, TooLate
from jobs.models.model import Model
from ops.embedded.servers import EmbeddedServers
from tests.support.wait import PATIENCE_S, eventually_async

MODEL = Model("m", "1", "echo", target_ms=250)


def asked(took_ms: float = 20.0, refused: Rejection | None = None) -> InferenceRequest:
    """A call that came so long ago."""
    terms = Terms(allowed_ms=100.0, one_ms=30.0)
    return InferenceRequest(
        ids.show("call", ids.new()), "t", "x", 1.0, "standard", 1.0, 1000,
        clock.monotonic() + 1.0 - took_ms / 1000, asyncio.Future(), clock.monotonic(),
        attempts=[AdmissionAttempt(MODEL, 1, "{}/0", terms, refused)],
    )  # fmt: skip


@pytest.fixture
def on() -> bool:
    return True


@pytest.fixture
async def records(
    servers: EmbeddedServers, redis_client: "redis.Redis", on: bool
) -> AsyncIterator[CallLog]:
    """Records that are written all the time."""
    pipe = RedisPipeline(servers.redis.url, PATIENCE_S)
    made = CallLog(pipe, on=on)
    made.start()
    yield made
    await made.stop()
    await pipe.close()


async def found(records: CallLog, id: str) -> CallRecord:
    return await eventually_async(lambda: records.find(id))  # type: ignore[return-value]


@pytest.mark.anyio
async def test_an_answer_is_kept_for_an_hour(records: CallLog, redis_client: "redis.Redis") -> None:
    call = asked()
    records.record_end(call, {"queue_ms": 3.0, "flush": "pace"})
    record = await found(records, call.id)
    assert (record.outcome, record.key) == ("succeeded", "m@1")
    assert (record.tenant, record.lane) == ("t", "{}/0")
    assert record.timing["queue_ms"] == 3.0
    assert 20 <= record.total_ms < PATIENCE_S * 1000
    left_s: Any = redis_client.ttl(str(record_key(record.id)))
    assert RETENTION_S - PATIENCE_S < left_s <= RETENTION_S + PATIENCE_S


@pytest.mark.anyio
async def test_a_refusal_is_kept_with_its_terms(records: CallLog) -> None:
    call = asked(refused=Rejection("late", 180.0))
    records.record_end(call, TooLate("too late"))
    record = await found(records, call.id)
    assert record.outcome == "predicted_wait"
    assert (record.needed_ms, record.allowed_ms) == (210.0, 100.0)


@pytest.mark.anyio
async def test_of_too_many_those_that_failed_and_the_slowest_are_kept(
    records: CallLog, redis_client: "redis.Redis"
) -> None:
    for took_ms in range(3000):
        records.record_end(asked(took_ms=float(took_ms % 300)), {})
    slow, lost = asked(took_ms=1e6), asked(took_ms=1.0)
    records.record_end(slow, {})
    records.record_end(lost, NoWorker("none"))
    assert (await found(records, slow.id)).total_ms >= 1e6
    assert (await found(records, lost.id)).outcome == "no_worker"
    await records.stop()
    kept = sum(int(redis_client.hlen(key)) for key in redis_client.keys("millrace:ended:*"))  # type: ignore[arg-type, union-attr]
    assert kept == pytest.approx(300, abs=30)


@pytest.mark.anyio
@pytest.mark.parametrize("on", [False])
async def test_nothing_is_kept_where_metrics_are_off(
    records: CallLog, redis_client: "redis.Redis"
) -> None:
    records.record_end(asked(), {})
    await records.stop()
    assert redis_client.keys("millrace:ended:*") == []


def test_each_end_has_a_name() -> None:
    broke = MillraceError("it broke", faults=[Fault((), "engine_error", "so")])
    assert outcome_of(NoWorker("none")) == "no_worker"
    assert outcome_of(broke) == "engine_error"
    assert outcome_of(ClientDisconnect()) == "cancelled"
    assert outcome_of(redis.exceptions.ConnectionError()) == "unavailable"
    assert outcome_of(ValueError()) == "internal"


def test_what_is_no_calls_id_has_no_record() -> None:
    assert record_key("job_01aryz6s41tsv4rrffq69g5fav") is None
