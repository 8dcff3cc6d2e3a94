"""Tenants, keys, the secret, the audit log: for whom, and that a secret is shown once."""

import re

import pytest
from sqlalchemy import Engine, text

from jobs.identity import Limit
from jobs.store.tenants import limits, tenants
from tests.integration.api.dashboard.conftest import Jobs, People
from tests.support.stores.transactions import transact

KEY = re.compile(r"mk_[A-Za-z0-9_-]{43}")
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


def test_all_tenants_are_in_the_list_those_with_jobs_alone_too(people: People, jobs: Jobs) -> None:
    jobs.post(tenant="nokeys", items=7)
    for name in ("acme", "house", "mallory", "nokeys"):
        shown = people.get("operator", f"/tenants?after={name[:-1]}").text
        assert f'href="/dashboard/tenants/{name}"' in shown
    assert (
        people.get("operator", "/tenants?after=house").text.count('href="/dashboard/tenants/') < 9
    )
    assert people.get("operator", "/tenants/nokeys").status_code == 200
    assert people.get("operator", "/tenants/nobody").status_code == 404


def test_no_page_shows_a_key_but_that_which_made_it(people: People, database: Engine) -> None:
    made = people.post("admin", "/keys", tenant="acme", name="<b>", role="tenant", days="2")
    assert made.status_code == 200
    [key] = set(KEY.findall(made.text))
    people.keys["new"] = key
    assert people.get("new", "/jobs").status_code == 200
    for path in ("/tenants/acme", "/tenants"):
        assert not KEY.search(people.get("admin", path).text)
    assert "<b>" not in people.get("admin", "/tenants/acme").text
    with database.connect() as tx:
        row = tx.execute(text("SELECT * FROM api_keys WHERE name = '<b>'")).one()
    assert 1.9 < (row.expires_at - row.created_at).total_seconds() / 86_400 < 2.1


def test_whose_keys_there_are_is_for_admins_and_for_themselves(people: People) -> None:
    for who, path, seen in (
        ("admin", "/tenants/acme", True),
        ("acme", "/tenants/acme", True),
        ("operator", "/tenants/house", True),
        ("operator", "/tenants/acme", False),
    ):
        shown = people.get(who, path)
        assert shown.status_code == 200
        assert ("key_" in shown.text) == seen, (who, path)
        assert (">Keys<" in shown.text) == seen, (who, path)


def test_a_key_is_rotated_and_revoked(people: People, database: Engine) -> None:
    shown = people.get("admin", "/tenants/mallory").text
    [id] = set(re.findall(r"/keys/(key_\w+)/rotate", shown))
    [key] = set(KEY.findall(people.post("admin", f"/keys/{id}/rotate").text))
    people.keys["rotated"] = key
    assert people.get("rotated", "/jobs").status_code == 200
    answer = people.post("admin", f"/keys/{id}/revoke", tenant="mallory")
    assert answer.headers["location"] == "/dashboard/tenants/mallory"
    answer = people.post("admin", f"/keys/{id}/revoke", tenant="//evil.example")
    assert answer.headers["location"] == "/dashboard/tenants"
    with database.connect() as tx:
        row = tx.execute(text("SELECT * FROM api_keys WHERE replaced_by IS NOT NULL")).one()
    assert row.revoked_at is not None


@pytest.mark.parametrize("who", ["operator", "acme", "reader"])
def test_only_admins_change_terms_and_keys(people: People, database: Engine, who: str) -> None:
    for path in ("/keys", "/tenants/acme/limits", "/tenants/acme/terms"):
        assert people.post(who, path, tenant="acme", weight="9").status_code == 403
    content = people.get(who, "/tenants/acme").text.split("<main")[1]
    assert 'method="post"' not in content
    assert people.get(who, "/audit").status_code == 403


def test_terms_and_limits_are_set_as_they_are_typed(people: People, database: Engine) -> None:
    people.post("admin", "/tenants/acme/terms", weight="2.5", soft_cap="1,000", hard_cap="")
    form = {
        "limit-0-model": "echo",
        "limit-0-key": "",
        "limit-0-requests_per_s": "5.5",
        "limit-0-job_items": "1,000",
        "limit-1-model": "",
        "limit-1-key": "",
        "limit-1-queued_items": "",
    }
    assert people.post("admin", "/tenants/acme/limits", **form).status_code == 303
    with database.begin() as tx:
        row = tenants.get(tx, "acme")
        assert (row.weight, row.soft_cap, row.hard_cap) == (2.5, 1000, None)
        wanted = Limit("echo", requests_per_s=5.5, job_items=1000)
        assert limits.get(tx, "acme") == [wanted]
    assert 'value="5.5"' in people.get("admin", "/tenants/acme").text
    assert "5.5" in people.get("acme", "/tenants/acme").text


@pytest.mark.parametrize("typed", ["much", "-1", "0", "nan", "inf", "1e999"])
def test_what_is_no_limit_is_refused_unset(people: People, database: Engine, typed: str) -> None:
    form = {"limit-0-model": "", "limit-0-key": "", "limit-0-job_items": typed}
    assert people.post("admin", "/tenants/acme/limits", **form).status_code == 422
    assert transact(database, limits.get, "acme") == []


def test_the_secret_of_webhooks_is_shown_once(people: People) -> None:
    assert not SECRET.search(people.get("acme", "/webhooks").text)
    shown = people.post("acme", "/webhooks/secret/show").text
    assert SECRET.search(shown)
    assert not SECRET.search(people.post("acme", "/webhooks/secret/show").text)
    rotated = people.post("acme", "/webhooks/secret/rotate").text
    assert SECRET.findall(rotated) != SECRET.findall(shown)
    assert not SECRET.search(people.get("acme", "/webhooks").text)
    assert people.post("acme", "/webhooks/secret/other").status_code == 422


def test_acts_are_found_by_who_what_whose_and_when(people: People, jobs: Jobs) -> None:
    job_id = jobs.post()
    people.post("acme", f"/jobs/{job_id}/pause")
    people.post("admin", f"/jobs/{job_id}/cancel")
    for query, acts in (
        ("", {"job.pause", "job.cancel"}),
        ("act=job", {"job.pause", "job.cancel"}),
        ("act=job.pause", {"job.pause"}),
        ("act=jo", set()),
        (f"target={job_id}&tenant=acme", {"job.pause", "job.cancel"}),
        ("tenant=mallory", set()),
        ("until=2020-01-01", set()),
        ("since=2020-01-01", {"job.pause", "job.cancel"}),
        ("actor=nobody", set()),
    ):
        shown = people.get("admin", f"/audit?{query}").text.split("<main")[1]
        assert set(re.findall(r"<td>(job\.\w+)</td>", shown)) == acts, query
