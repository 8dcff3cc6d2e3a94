"""The list of calls that ended: on its page and by HTTP, to each their own."""

import pytest
import redis

from api.services.call_list import CallList
from jobs import ids
from jobs.calls.records import LEFT_OUT, CallRecord, record_key
from tests.integration.api.conftest import XSS, People


@pytest.fixture
def ended(redis_client: "redis.Redis") -> dict[str, str]:
    """Ids of calls that ended, by tenant."""
    found = {}
    for tenant, outcome, ms in (("mallory", "overloaded", 1.0), ("acme", "succeeded", 400.0)):
        id = ids.show("call", ids.new())
        timing = {"total_ms": ms, "queue_ms": 3.0, "batch_size": 8}
        one = CallRecord(
            id, tenant, "m", "1", "standard", outcome, 0.0, 250, 5000, 7, "", timing,
            worker="12", units=9,
        )  # fmt: skip
        redis_client.hset(str(record_key(id)), id, one.pack())
        found[tenant] = id
    redis_client.hset(str(record_key(found["acme"])), LEFT_OUT, "77")  # type: ignore[arg-type]
    return found


def test_operators_see_all_calls_tenants_their_own(people: People, ended: dict[str, str]) -> None:
    both = people.page("operator", "/calls")
    for shown in (*ended.values(), "77 more calls", '/workers/12"'):
        assert shown in both
    mine = people.page("acme", "/calls")
    assert ended["acme"] in mine
    assert "Not all calls are recorded" in mine
    for hidden in (ended["mallory"], "more calls", "/workers/12"):
        assert hidden not in mine
    assert ended["mallory"] in people.page("operator", "/calls?tenant=mallory")
    assert people.get("acme", "/calls?tenant=mallory").status_code == 403


def test_a_filter_says_what_it_looked_for(people: People, ended: dict[str, str]) -> None:
    late = people.page("operator", "/calls?outcome=late&slower_ms=300&model=m")
    assert ended["acme"] in late
    assert ended["mallory"] not in late
    assert 'value="late"' in late
    assert "No call matches" in people.page("operator", "/calls?slower_ms=1000")
    assert XSS not in people.get("operator", f"/calls?text={XSS}").text
    for query in ("slower_ms=x", "slower_ms=-1", "since=now", "after=job_1"):
        assert people.get("operator", f"/calls?{query}").status_code == 422, query


def test_an_id_leads_to_its_page(people: People, ended: dict[str, str]) -> None:
    page = f"/calls/{ended['acme']}"
    found = people.get("acme", f"/calls?id={ended['acme']}")
    assert found.headers["location"] == f"/dashboard{page}"
    assert people.get("acme", f"/calls/{ids.new_shown('call')}").status_code == 404
    assert '/workers/12"' in people.page("operator", page)
    assert "/workers/12" not in people.page("acme", page)


def test_calls_are_listed_by_http(people: People, ended: dict[str, str]) -> None:
    found = people.ask("operator", "/calls", tenant="*").json()
    newest_first = sorted(ended.values(), reverse=True)
    assert [one["id"] for one in found["data"]] == newest_first
    assert found["left_out"] == 77
    own = people.ask("acme", "/calls").json()
    [call] = own["data"]
    assert (call["id"], call["late"], call["units"]) == (ended["acme"], True, 9)
    assert (call["worker"], own["left_out"]) == (None, None)
    assert people.ask("acme", "/calls", tenant="*").status_code == 403
    for outcome, count in (("refused", 1), ("late", 0)):
        of_mallory = people.ask("operator", "/calls", tenant="mallory", outcome=outcome).json()
        assert len(of_mallory["data"]) == count
    first = people.ask("operator", "/calls", tenant="*", limit=1).json()
    second = people.ask("operator", "/calls", tenant="*", limit=1, after=first["next"]).json()
    assert [page["data"][0]["id"] for page in (first, second)] == newest_first
    assert second["next"] is None


def test_without_redis_the_page_says_so(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(CallList, "page", away)
    assert "Redis doesn't answer" in people.page("operator", "/calls")
