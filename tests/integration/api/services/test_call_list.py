"""Lists of calls that ended, from records in a real Redis."""

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import pytest
import redis

from api.gateway.redis_pipeline import RedisPipeline
from api.services import call_list
from api.services.call_list import CallList, CallPage
from jobs import clock, ids
from jobs.calls.records import LEFT_OUT, RETENTION_S, CallFilter, CallRecord, record_key
from ops.embedded.servers import EmbeddedServers
from tests.support.wait import PATIENCE_S

ALL = CallFilter()


@dataclass
class Records:
    """Records of calls, and lists of them."""

    redis: "redis.Redis"
    url: str
    now: datetime

    def add(self, minutes_ago: float = 0, tenant: str = "t", outcome: str = "succeeded") -> str:
        """Records a call that was made so many minutes ago; returns its id."""
        at = self.now - timedelta(minutes=minutes_ago)
        id = ids.show("call", ids.derived(at, str(minutes_ago), str(clock.random_bits(64))))
        one = CallRecord(id, tenant, "m", "1", "standard", outcome, 0.0, 250, 5000, 7, "")
        self.redis.hset(str(record_key(id)), id, one.pack())
        return id

    def page(
        self, want: CallFilter = ALL, after: str | None = None, limit: int = 50
    ) -> tuple[list[str], CallPage]:
        """A page of a list: (ids, all that it says)."""

        async def ask() -> CallPage:
            pipe = RedisPipeline(self.url, PATIENCE_S)
            try:
                return await CallList(pipe).page(want, after, limit)
            finally:
                await pipe.close()

        found = asyncio.run(ask())
        return [call.id for call in found.calls], found

    def pages(self, want: CallFilter = ALL, limit: int = 50) -> list[list[str]]:
        """Ids on all pages of a list."""
        pages, after = list[list[str]](), None
        while not pages or after is not None:
            found, page = self.page(want, after, limit)
            pages.append(found)
            after = page.next
        return pages


@pytest.fixture
def records(
    servers: EmbeddedServers, redis_client: "redis.Redis", monkeypatch: pytest.MonkeyPatch
) -> Records:
    """Records while the clock stands still."""
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    return Records(redis_client, servers.redis.url, now)


def test_the_newest_come_first_and_pages_go_on_where_the_last_ended(records: Records) -> None:
    made = [records.add(minutes) for minutes in (0, 0.01, 0.02, 1.5, 20, 59)]
    assert records.pages() == [made]
    assert records.pages(limit=2) == [made[:2], made[2:4], made[4:]]
    assert records.pages(limit=3) == [made[:3], made[3:]]  # it ends with the last call


def test_a_tenant_sees_its_own(records: Records) -> None:
    mine = [records.add(minutes, "acme") for minutes in (1, 3)]
    records.add(0, "acme2")
    records.add(2, "other")
    assert records.pages(CallFilter(tenant="acme")) == [mine]


def test_times_bound_the_minutes_that_are_read(records: Records) -> None:
    made = [records.add(minutes) for minutes in (1, 10, 20)]
    since, until = (records.now - timedelta(minutes=minutes) for minutes in (15, 5))
    want = CallFilter(since=since, until=until)
    assert records.pages(want) == [[made[1]]]


def test_after_many_records_a_page_ends_and_the_next_goes_on(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_list, "_MOST_READ", 3)
    for minutes in (1, 1.001, 1.002, 2, 2.001, 2.002):
        records.add(minutes)
    rare = records.add(3, outcome="overloaded")
    found = records.pages(CallFilter(outcome="refused"))
    assert found[-1] == [rare]
    assert len(found) >= 2
    assert not any(found[:-1])


def test_calls_without_a_record_are_counted_and_no_call(records: Records) -> None:
    id = records.add()
    records.redis.hincrby(str(record_key(id)), LEFT_OUT, 41)  # type: ignore[arg-type]
    found, page = records.page()
    assert (found, page.left_out) == ([id], 41)


def test_what_another_release_wrote_is_left_out(records: Records) -> None:
    id = records.add()
    others = {"call_x": b"{", "call_y": b'{"id": 1}'}
    records.redis.hset(str(record_key(id)), mapping=others)
    assert records.pages() == [[id]]


def test_all_minutes_of_which_records_are_kept_are_read(records: Records) -> None:
    oldest = records.add(RETENTION_S / 60 - 0.1)
    assert records.pages() == [[oldest]]
