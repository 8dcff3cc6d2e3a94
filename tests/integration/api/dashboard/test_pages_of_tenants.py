"""Tenants, keys, the secret, the audit log: for whom, and that a secret is shown once."""

import re

import pytest

from jobs.identity import Limit
from jobs.store.tenants import limits, tenants
from tests.integration.api.conftest import Jobs, People
from tests.support.cases import each
from tests.support.stores.transactions import fetch, scalar, transact

KEY = re.compile(r"mk_[A-Za-z0-9_-]{43}")
SECRET = re.compile(r"whsec_[A-Za-z0-9+/=]+")


def test_all_tenants_are_in_the_list_those_with_jobs_alone_too(people: People, jobs: Jobs) -> None:
    jobs.post(tenant="nokeys", items=7)
    for name in ("acme", "house", "mallory", "nokeys"):
        shown = people.page("operator", f"/tenants?after={name[:-1]}")
        assert f'href="/dashboard/tenants/{name}"' in shown
    assert people.page("operator", "/tenants?after=house").count('href="/dashboard/tenants/') < 9
    assert people.page("operator", "/tenants/nokeys")
    assert people.get("operator", "/tenants/nobody").status_code == 404


def test_no_page_shows_a_key_but_that_which_made_it(people: People) -> None:
    made = people.post("admin", "/keys", tenant="acme", name="<b>", role="tenant", days="2")
    assert made.status_code == 200
    [key] = set(KEY.findall(made.text))
    people.keys["new"] = key
    assert people.page("new", "/jobs")
    for path in ("/tenants/acme", "/tenants"):
        page = people.page("admin", path)
        assert not KEY.search(page)
        assert "<b>" not in page
    [row] = fetch(people.database, "SELECT * FROM api_keys WHERE name = '<b>'")
    assert 1.9 < (row.expires_at - row.created_at).total_seconds() / 86_400 < 2.1


def test_whose_keys_there_are_is_for_admins_and_for_themselves(people: People) -> None:
    for who, path, seen in (
        ("admin", "/tenants/acme", True),
        ("acme", "/tenants/acme", True),
        ("operator", "/tenants/house", True),
        ("operator", "/tenants/acme", False),
    ):
        shown = people.page(who, path)
        assert ("key_" in shown, ">Keys<" in shown) == (seen, seen), (who, path)


def test_a_key_is_rotated_and_revoked(people: People) -> None:
    shown = people.page("admin", "/tenants/mallory")
    [id] = set(re.findall(r"/keys/(key_\w+)/rotate", shown))
    [key] = set(KEY.findall(people.post("admin", f"/keys/{id}/rotate").text))
    people.keys["rotated"] = key
    assert people.page("rotated", "/jobs")
    for tenant, back in (("mallory", "/tenants/mallory"), ("//evil.example", "/tenants")):
        answer = people.post("admin", f"/keys/{id}/revoke", tenant=tenant)
        assert answer.headers["location"] == f"/dashboard{back}"
    query = "SELECT revoked_at IS NOT NULL FROM api_keys WHERE replaced_by IS NOT NULL"
    assert scalar(people.database, query)


@pytest.mark.parametrize("who", ["operator", "acme", "reader"])
def test_only_admins_change_terms_and_keys(people: People, who: str) -> None:
    for path in ("/keys", "/tenants/acme/limits", "/tenants/acme/terms"):
        assert people.post(who, path, tenant="acme", weight="9").status_code == 403
    content = people.page(who, "/tenants/acme").split("<main")[1]
    assert 'method="post"' not in content
    assert people.get(who, "/audit").status_code == 403


def test_terms_and_limits_are_set_as_they_are_typed(people: People) -> None:
    people.post("admin", "/tenants/acme/terms", weight="2.5", soft_cap="1,000", hard_cap="")
    first = {"model": "echo", "key": "", "requests_per_s": "5.5", "job_items": "1,000"}
    second = {"model": "", "key": "", "queued_items": ""}
    typed = [first, second]
    form = {f"limit-{n}-{name}": typed[n][name] for n in range(2) for name in typed[n]}
    assert people.post("admin", "/tenants/acme/limits", **form).status_code == 303
    row = transact(people.database, tenants.get, "acme")
    assert (row.weight, row.soft_cap, row.hard_cap) == (2.5, 1000, None)
    wanted = Limit("echo", requests_per_s=5.5, job_items=1000)
    assert transact(people.database, limits.get, "acme") == [wanted]
    assert 'value="5.5"' in people.page("admin", "/tenants/acme")
    assert "5.5" in people.page("acme", "/tenants/acme")


def test_what_is_no_limit_is_refused_unset(people: People) -> None:
    for typed, case in each(["much", "-1", "0", "nan", "inf", "1e999"]):
        with case:
            form = {"limit-0-model": "", "limit-0-key": "", "limit-0-job_items": typed}
            assert people.post("admin", "/tenants/acme/limits", **form).status_code == 422
            assert transact(people.database, limits.get, "acme") == []


def test_the_secret_of_webhooks_is_shown_once(people: People) -> None:
    assert not SECRET.search(people.page("acme", "/webhooks"))
    shown = people.post("acme", "/webhooks/secret/show").text
    assert SECRET.search(shown)
    assert not SECRET.search(people.post("acme", "/webhooks/secret/show").text)
    rotated = people.post("acme", "/webhooks/secret/rotate").text
    assert SECRET.findall(rotated) != SECRET.findall(shown)
    assert not SECRET.search(people.page("acme", "/webhooks"))
    assert people.post("acme", "/webhooks/secret/other").status_code == 422


def test_acts_are_found_by_who_what_whose_and_when(people: People, jobs: Jobs) -> None:
    job_id = jobs.post()
    people.post("acme", f"/jobs/{job_id}/pause")
    people.post("admin", f"/jobs/{job_id}/cancel")
    for acts, queries in (
        (["job.cancel", "job.pause"], ["", "act=job", f"target={job_id}&tenant=acme"]),
        (["job.cancel", "job.pause"], ["since=2020-01-01"]),
        (["job.pause"], ["act=job.pause"]),
        ([], ["act=jo", "tenant=mallory", "until=2020-01-01", "actor=nobody"]),
    ):
        for query in queries:
            shown = people.page("admin", f"/audit?{query}").split("<main")[1]
            assert sorted(re.findall(r"<td>(job\.\w+)</td>", shown)) == acts, query
