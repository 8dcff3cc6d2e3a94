"""The stream of a job's progress: the latest state to everybody who watches, at the cost of one."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import orjson
import psycopg
import pytest
from sqlalchemy import Engine, event
from sqlalchemy.exc import TimeoutError as NoConnection

from api.services import job_watcher
from api.services.job_watcher import JobWatcher, event_id
from jobs.store.jobs import read as reading
from jobs.store.jobs import verbs
from jobs.usecases.cancel import cancel
from jobs.views import jobs as views
from tests.support.stores.store import claim, post, settle
from tests.support.stores.transactions import transact
from tests.support.wait import eventually_async

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_watcher, "_POLL_S", 0.02)


@pytest.fixture
async def feed(database: Engine) -> AsyncIterator[JobWatcher]:
    made = JobWatcher(database)
    made.start()
    yield made
    await made.stop()


def shown(database: Engine, id: UUID) -> dict[str, Any]:
    return views.job_object(transact(database, reading.one, "default", id))


async def watched(database: Engine, feed: JobWatcher) -> tuple[UUID, AsyncIterator[bytes]]:
    """A job of one item, and a stream of it whose first event was read."""
    id = post(database, "x")
    stream = feed.stream(shown(database, id))
    assert (await next_job(stream))["state"] == "queued"
    return id, stream


async def next_job(stream: AsyncIterator[bytes]) -> dict[str, Any]:
    """The next event's data; comments are passed over."""
    while b"\nevent: job\n" not in (block := await anext(stream)):
        pass
    [data] = [line for line in block.splitlines() if line.startswith(b"data: ")]
    job: dict[str, Any] = orjson.loads(data.removeprefix(b"data: "))
    assert f"id: {event_id(job)}\n".encode() in block
    return job


async def test_a_watcher_sees_the_state_now_then_each_change_then_the_end(
    database: Engine, feed: JobWatcher
) -> None:
    id = post(database, *["x"] * 2000)
    stream = feed.stream(shown(database, id))
    assert (await next_job(stream))["state"] == "queued"
    settle(database, claim(database))
    while (job := await next_job(stream))["counts"]["succeeded"] < 1000:
        pass
    assert job["state"] == "running"
    settle(database, claim(database))
    while (job := await next_job(stream))["state"] != "completed":
        pass
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert feed.watching() == 0


async def test_a_slow_reader_gets_the_latest_state_and_none_in_between(
    database: Engine, feed: JobWatcher
) -> None:
    id = post(database, *["x"] * 3000)
    slow, quick = feed.stream(shown(database, id)), feed.stream(shown(database, id))
    await next_job(slow)
    job = await next_job(quick)
    for _ in range(3):
        settle(database, claim(database))
        while job["counts"]["pending"] == shown(database, id)["counts"]["pending"] + 1000:
            job = await next_job(quick)
    while job["state"] != "completed":
        job = await next_job(quick)
    assert (await next_job(slow))["state"] == "completed"


async def test_a_thousand_watchers_cost_one_query_a_look(
    database: Engine, feed: JobWatcher
) -> None:
    ids = [post(database, "x") for _ in range(20)]
    jobs = [shown(database, id) for id in ids]
    queries, looks = list[str](), list[str]()

    def note(*args: Any) -> None:
        if "FROM jobs" in args[2]:
            queries.append(args[2])

    event.listen(database, "begin", lambda _: looks.append("look"))
    event.listen(database, "before_cursor_execute", note)
    streams = [feed.stream(job) for job in jobs for _ in range(50)]
    for stream in streams:
        await next_job(stream)
    await eventually_async(lambda: len(looks) > 3)
    assert 0 < len(queries) <= len(looks)

    cancel(database, ids[0])
    for stream in streams[:50]:
        assert (await next_job(stream))["state"] == "cancelled"


async def test_a_client_that_goes_away_leaves_nothing_behind(
    database: Engine, feed: JobWatcher
) -> None:
    _, stream = await watched(database, feed)
    waiting = asyncio.create_task(anext(stream))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert feed.watching() == 1
    waiting.cancel()
    await eventually_async(waiting.done)
    assert feed.watching() == 0


async def test_a_quiet_stream_has_heartbeats(
    database: Engine, monkeypatch: pytest.MonkeyPatch, feed: JobWatcher
) -> None:
    monkeypatch.setattr(job_watcher, "_HEARTBEAT_S", 0.01)
    _, stream = await watched(database, feed)
    for _ in range(2):
        assert await anext(stream) == b": still here\n\n"


@pytest.mark.parametrize("how", ["deleted", "stopped"])
async def test_a_stream_ends_with_its_job_or_its_process(
    database: Engine, how: str, feed: JobWatcher
) -> None:
    id, stream = await watched(database, feed)
    if how == "stopped":
        feed.close()
    else:
        with database.begin() as tx:
            verbs.cancel(tx, id)
            verbs.delete(tx, id)
    with pytest.raises(StopAsyncIteration):
        await anext(stream)


@pytest.mark.parametrize("away", [psycopg.OperationalError, NoConnection])
async def test_a_database_away_for_long_ends_no_stream(
    database: Engine, away: type[Exception], feed: JobWatcher
) -> None:
    id, stream = await watched(database, feed)
    failed: list[object] = []

    def fails(*asked: object) -> None:
        failed.append(asked)
        raise away("gone")

    event.listen(database, "before_cursor_execute", fails)
    await eventually_async(lambda: len(failed) > 1)
    event.remove(database, "before_cursor_execute", fails)
    cancel(database, id)
    assert (await next_job(stream))["state"] == "cancelled"
