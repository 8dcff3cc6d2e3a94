"""Lists of calls that ended, from records in a real Redis."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
import redis

from api.gateway.redis_pipeline import RedisPipeline
from api.services import call_list
from api.services.call_list import CallList, CallPage
from jobs import clock, ids
from jobs.calls.records import LEFT_OUT, RETENTION_S, CallFilter, CallRecord, record_key
from ops.embedded.servers import EmbeddedServers

ALL = CallFilter()


def id_of(minutes_ago: float) -> str:
    at = clock.now() - timedelta(minutes=minutes_ago)
    return ids.show("call", ids.derived(at, str(minutes_ago), str(clock.random_bits(64))))


@pytest.fixture
def ended(redis_client: "redis.Redis") -> Callable[..., str]:
    """Records a call that was made so many minutes ago; returns its id."""

    def record(minutes_ago: float = 0, tenant: str = "t", outcome: str = "succeeded") -> str:
        id = id_of(minutes_ago)
        one = CallRecord(id, tenant, "m", "1", "standard", outcome, 0.0, 250, 5000, 7, "")
        redis_client.hset(str(record_key(id)), id, one.pack())
        return id

    return record


@pytest.fixture
def listed(servers: EmbeddedServers, redis_client: "redis.Redis") -> Callable[..., CallPage]:
    def page(want: CallFilter = ALL, after: str | None = None, limit: int = 50) -> CallPage:
        async def ask() -> CallPage:
            pipe = RedisPipeline(servers.redis.url, 5.0)
            try:
                return await CallList(pipe).page(want, after, limit)
            finally:
                await pipe.close()

        return asyncio.run(ask())

    return page


def pages(listed: Callable[..., CallPage], want: CallFilter, limit: int) -> list[list[str]]:
    found, after = [], None
    while True:
        page = listed(want, after, limit)
        found.append([call.id for call in page.calls])
        if (after := page.next) is None:
            return found


def test_the_newest_come_first_and_pages_go_on_where_the_last_ended(
    ended: Callable[..., str], listed: Callable[..., CallPage]
) -> None:
    made = [ended(minutes) for minutes in (0, 0.01, 0.02, 1.5, 20, 59)]
    assert pages(listed, ALL, 50) == [made]
    assert pages(listed, ALL, 2) == [made[:2], made[2:4], made[4:]]


def test_a_page_that_ends_with_the_last_call_says_so(
    ended: Callable[..., str], listed: Callable[..., CallPage]
) -> None:
    made = [ended(minutes) for minutes in (0, 1, 2, 3)]
    assert pages(listed, ALL, 2) == [made[:2], made[2:]]


def test_a_tenant_sees_its_own(ended: Callable[..., str], listed: Callable[..., CallPage]) -> None:
    mine = [ended(minutes, "acme") for minutes in (1, 3)]
    ended(0, "acme2")
    ended(2, "other")
    assert pages(listed, CallFilter(tenant="acme"), 50) == [mine]


def test_times_bound_the_minutes_that_are_read(
    ended: Callable[..., str], listed: Callable[..., CallPage]
) -> None:
    made = [ended(minutes) for minutes in (1, 10, 20)]
    now = clock.now()
    want = CallFilter(since=now - timedelta(minutes=15), until=now - timedelta(minutes=5))
    assert pages(listed, want, 50) == [[made[1]]]


def test_after_many_records_a_page_ends_and_the_next_goes_on(
    ended: Callable[..., str], listed: Callable[..., CallPage], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_list, "_MOST_READ", 3)
    for minutes in (1, 1.001, 1.002, 2, 2.001, 2.002):
        ended(minutes)
    rare = ended(3, outcome="overloaded")
    found = pages(listed, CallFilter(outcome="refused"), 50)
    assert found[-1] == [rare]
    assert len(found) >= 2
    assert not any(found[:-1])


def test_calls_without_a_record_are_counted_and_no_call(
    ended: Callable[..., str], listed: Callable[..., CallPage], redis_client: "redis.Redis"
) -> None:
    id = ended()
    redis_client.hincrby(str(record_key(id)), LEFT_OUT, 41)  # type: ignore[arg-type]
    page = listed()
    assert ([call.id for call in page.calls], page.left_out) == ([id], 41)


def test_what_another_release_wrote_is_left_out(
    ended: Callable[..., str], listed: Callable[..., CallPage], redis_client: "redis.Redis"
) -> None:
    id = ended()
    redis_client.hset(str(record_key(id)), mapping={"call_x": b"{", "call_y": b'{"id": 1}'})
    assert [call.id for call in listed().calls] == [id]


def test_all_minutes_of_which_records_are_kept_are_read(
    ended: Callable[..., str], listed: Callable[..., CallPage]
) -> None:
    oldest = ended(RETENTION_S / 60 - 0.1)
    assert [call.id for call in listed().calls] == [oldest]
