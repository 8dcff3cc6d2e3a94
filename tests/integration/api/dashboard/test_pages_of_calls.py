"""The list of calls that ended: on its page and by HTTP, to each their own."""

from typing import Any

import pytest
import redis

from api.services.call_list import CallList
from jobs import ids
from jobs.calls.records import LEFT_OUT, CallRecord, record_key
from tests.integration.api.dashboard.conftest import XSS, People


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


def ask(people: People, who: str, **query: Any) -> Any:
    headers = {"Authorization": f"Bearer {people.keys[who]}"}
    return people.client.get("/calls", params=query, headers=headers)


def test_operators_see_all_calls_tenants_their_own(people: People, ended: dict[str, str]) -> None:
    both = people.get("operator", "/calls").text
    assert all(id in both for id in ended.values())
    assert "77 more calls" in both
    assert '/workers/12"' in both
    mine = people.get("acme", "/calls").text
    assert ended["acme"] in mine
    assert ended["mallory"] not in mine
    assert "more calls" not in mine
    assert "Not all calls are recorded" in mine
    assert "/workers/12" not in mine
    assert ended["mallory"] in people.get("operator", "/calls?tenant=mallory").text
    assert people.get("acme", "/calls?tenant=mallory").status_code == 403


def test_a_filter_says_what_it_looked_for(people: People, ended: dict[str, str]) -> None:
    late = people.get("operator", "/calls?outcome=late&slower_ms=300&model=m").text
    assert ended["acme"] in late
    assert ended["mallory"] not in late
    assert 'value="late"' in late
    assert "No call matches" in people.get("operator", "/calls?slower_ms=1000").text
    odd = people.get("operator", f"/calls?text={XSS}").text
    assert XSS not in odd


@pytest.mark.parametrize("query", ["slower_ms=x", "slower_ms=-1", "since=now", "after=job_1"])
def test_a_filter_that_is_none_is_refused(people: People, query: str) -> None:
    assert people.get("operator", f"/calls?{query}").status_code == 422


def test_an_id_leads_to_its_page(people: People, ended: dict[str, str]) -> None:
    found = people.get("acme", f"/calls?id={ended['acme']}")
    assert found.headers["location"] == f"/dashboard/calls/{ended['acme']}"
    page = people.get("operator", f"/calls/{ended['acme']}").text
    assert '/workers/12"' in page
    assert "/workers/12" not in people.get("acme", f"/calls/{ended['acme']}").text


def test_calls_are_listed_by_http(people: People, ended: dict[str, str]) -> None:
    found = ask(people, "operator", tenant="*").json()
    assert [one["id"] for one in found["data"]] == sorted(ended.values(), reverse=True)
    assert found["left_out"] == 77
    own = ask(people, "acme").json()
    [call] = own["data"]
    assert (call["id"], call["late"], call["units"]) == (ended["acme"], True, 9)
    assert (call["worker"], own["left_out"]) == (None, None)
    assert ask(people, "acme", tenant="*").status_code == 403
    assert ask(people, "operator", tenant="mallory", outcome="refused").json()["data"]
    assert not ask(people, "operator", tenant="mallory", outcome="late").json()["data"]


def test_a_page_goes_on_after_another(people: People, ended: dict[str, str]) -> None:
    first = ask(people, "operator", tenant="*", limit=1).json()
    second = ask(people, "operator", tenant="*", limit=1, after=first["next"]).json()
    found = [page["data"][0]["id"] for page in (first, second)]
    assert found == sorted(ended.values(), reverse=True)
    assert second["next"] is None


def test_without_redis_the_page_says_so(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    async def away(*_: object) -> None:
        raise redis.ConnectionError("away")

    monkeypatch.setattr(CallList, "page", away)
    page = people.get("operator", "/calls")
    assert (page.status_code, "Redis doesn't answer" in page.text) == (200, True)
