"""Idempotency keys on the stores alone: jobs' in PostgreSQL, calls' in Redis."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from redis import Redis
from sqlalchemy import Engine

from api.app import create_app
from api.gateway import response_cache
from api.gateway.response_cache import ResponseCache
from jobs.errors import IdempotencyKeyInFlight, IdempotencyKeyReused, NoWorker
from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.jobs import idempotency
from jobs.usecases.submit import Order, submit
from tests.support.stores.store import count
from tests.support.stores.transactions import execute, transact
from tests.support.wait import PATIENCE_S
from workers.keeper import keeper

pytestmark = pytest.mark.anyio

CLAIM = Claim("default", "k", b"f" * 32)
NAME = "millrace:answer:default\nk"
CALL_MS = 60_000


def post(database: Engine, claim: Claim = CLAIM) -> str:
    try:
        submit(database, SAMPLES, claim.tenant, Order("echo"), array=["x"], claim=claim)
    except (IdempotencyKeyInFlight, IdempotencyKeyReused) as error:
        return error.code
    return "stored"


# -- jobs


def test_however_many_submit_under_one_key_one_job_is_stored(database: Engine) -> None:
    with ThreadPoolExecutor(16) as pool:
        ends = Counter(pool.map(lambda _: post(database), range(200)))
    assert ends == {"stored": 1, "idempotency_key_in_flight": 199}
    assert (count(database, "jobs"), count(database, "idempotency_keys")) == (1, 1)


def test_nobody_waits_for_a_request_that_holds_the_key(database: Engine) -> None:
    with database.begin() as tx:
        idempotency.lock(tx, CLAIM)
        assert post(database) == "idempotency_key_in_flight"
        assert post(database, Claim("default", "other", b"f" * 32)) == "stored"
    assert post(database) == "stored"


def test_keys_are_per_tenant(database: Engine) -> None:
    other = Claim("another", "k", b"g" * 32)
    assert (post(database), post(database, other)) == ("stored", "stored")
    assert post(database, Claim("another", "k", b"f" * 32)) == "idempotency_key_reused"


def test_a_transaction_that_fails_leaves_neither_key_nor_job(
    database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as broken:
        broken.setattr("jobs.usecases.submit.idempotency.store", crash)
        with pytest.raises(ZeroDivisionError):
            post(database)
    assert (count(database, "jobs"), count(database, "idempotency_keys")) == (0, 0)
    assert post(database) == "stored"


def test_old_keys_are_forgotten_in_batches(database: Engine, settings: Settings) -> None:
    assert [post(database, Claim("default", f"k{n}", b"f" * 32)) for n in range(5)]
    age = "UPDATE idempotency_keys SET created_at = now() - interval '25 h' WHERE key <> 'k4'"
    execute(database, age)
    with database.begin() as tx:
        assert [idempotency.delete_old(tx, 86_400, most=3) for _ in range(3)] == [3, 1, 0]
    assert count(database, "idempotency_keys") == 1
    [duty] = [d for d in keeper.duties(settings) if d.name == "forget keys"]
    assert transact(database, duty.step) == 0
    execute(database, age.replace("<>", "="))
    assert transact(database, duty.step) == 1


# -- calls


@pytest.fixture
async def kept(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ResponseCache]:
    for limit in ("_SETTLE_WAIT_S", "_TIMEOUT_S"):
        monkeypatch.setattr(response_cache, limit, PATIENCE_S)
    made = ResponseCache(settings.redis_url, ttl_s=600)
    yield made
    await made.stop()


async def ask(kept: ResponseCache, answer: bytes) -> tuple[bytes, bool]:
    async def call() -> bytes:
        return answer

    return await kept.once(CLAIM, CALL_MS, call)


async def test_one_of_many_calls_under_one_key_is_made(kept: ResponseCache) -> None:
    made = []

    async def call() -> bytes:
        made.append(1)
        await asyncio.sleep(0)
        return b"{}"

    calls = (kept.once(CLAIM, CALL_MS, call) for _ in range(200))
    ends = await asyncio.gather(*calls, return_exceptions=True)
    refused = [end for end in ends if isinstance(end, IdempotencyKeyInFlight)]
    replayed = [end for end in ends if end == (b"{}", True)]
    assert len(made) == 1
    assert ends.count((b"{}", False)) == 1
    assert len(refused) + len(replayed) == 199
    assert await kept.once(CLAIM, CALL_MS, call) == (b"{}", True)
    with pytest.raises(IdempotencyKeyReused):
        await kept.once(Claim("default", "k", b"g" * 32), CALL_MS, call)
    assert await kept.once(Claim("another", "k", b"g" * 32), CALL_MS, call) == (b"{}", False)


async def test_a_key_is_in_flight_no_longer_than_its_call_may_take_and_then_kept(
    kept: ResponseCache, redis_client: Redis
) -> None:
    begun = asyncio.Event()

    async def never() -> bytes:
        begun.set()
        return await asyncio.Future()

    call = asyncio.create_task(kept.once(CLAIM, CALL_MS, never))
    await begun.wait()
    assert 0 < redis_client.pttl(NAME) <= CALL_MS + 2000
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert not redis_client.exists(NAME)
    await ask(kept, b"{}")
    assert 500_000 < redis_client.pttl(NAME) <= 600_000


async def test_a_call_that_fails_frees_its_key_before_its_error_is_out(kept: ResponseCache) -> None:
    async def refused() -> bytes:
        raise NoWorker("none")

    with pytest.raises(NoWorker):
        await kept.once(CLAIM, CALL_MS, refused)
    assert await ask(kept, b"1") == (b"1", False)


async def test_who_lost_the_key_in_the_meantime_neither_frees_nor_overwrites_it(
    kept: ResponseCache, redis_client: Redis
) -> None:
    """Redis lost everything in the middle of a call; another one was made since."""

    async def slow() -> bytes:
        redis_client.flushall()
        assert await ask(kept, b"2") == (b"2", False)
        return b"1"

    assert await kept.once(CLAIM, CALL_MS, slow) == (b"1", False)
    assert await ask(kept, b"3") == (b"2", True)


async def test_an_answer_is_given_when_redis_cant_keep_it(
    kept: ResponseCache, redis_client: Redis
) -> None:
    async def call() -> bytes:
        redis_client.config_set("maxmemory", "1")  # from now on it refuses what is new
        return b"{}"

    try:
        assert await kept.once(CLAIM, CALL_MS, call) == (b"{}", False)
    finally:
        redis_client.config_set("maxmemory", "0")


# -- where keys are required


async def test_without_a_key_a_request_is_refused_where_one_is_required(settings: Settings) -> None:
    app = create_app(settings.evolve(require_idempotency_key=True))
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as http,
    ):
        body = {"model": "echo", "items": ["x"]}
        for path, sent in (("/jobs", body), ("/infer", {"model": "echo", "input": "x"})):
            answer = await http.post(path, json=sent)
            assert answer.status_code == 400
            assert answer.json()["title"] == "Idempotency-Key is missing"
        answer = await http.post("/jobs", json=body, headers={"Idempotency-Key": "k"})
        assert answer.status_code == 202
