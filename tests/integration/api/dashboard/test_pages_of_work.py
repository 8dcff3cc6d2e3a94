"""Jobs, a job, an item, webhooks: what each page shows to whom, and that nothing in it is code."""

import html
import re

import orjson
import pytest
from sqlalchemy import text

from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.store.queue import workers
from jobs.usecases.submit import Order, submit
from tests.integration.api.conftest import XSS, Jobs, People
from tests.support.cases import each
from tests.support.stores.transactions import execute, scalar, scalars

TAGS = re.compile(r"<script>|<img src=x|onerror=alert\(1\)>")


def pages_of(job_id: str) -> list[str]:
    return [
        "/jobs",
        "/jobs?text=note&state=completed&model=echo&since=2020-01-01T00:00&until=2099-01-01",
        "/jobs/all/retry",
        f"/jobs/{job_id}",
        f"/jobs/{job_id}?outcome=failed",
        f"/jobs/{job_id}?code=too_long",
        f"/jobs/{job_id}/slices",
        f"/jobs/{job_id}/delete",
        f"/jobs/{job_id}/items/0",
        f"/jobs/{job_id}/items/1",
        "/tenants/acme",
        "/webhooks",
        "/webhooks?state=pending&url=https://x.example/",
    ]


def test_every_page_shows_what_came_from_outside_as_text(people: People, jobs: Jobs) -> None:
    job_id = jobs.failed(webhook_url=f"https://x.example/?{XSS}")
    for path, case in each(pages_of(job_id)):
        with case:
            answer = people.get("acme", path)
            assert answer.status_code == 200, answer.text
            assert not TAGS.search(answer.text)
            assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert "&lt;script&gt;" in people.page("acme", f"/jobs/{job_id}")


@pytest.mark.parametrize("given", [XSS, "' OR 1=1 --", "%", "a" * 199])
def test_what_is_typed_into_filters_comes_back_as_text(people: People, given: str) -> None:
    filters = ("text", "name", "model", "url", "actor", "act", "target", "code")
    for path in ("/jobs", "/jobs/all/cancel", "/webhooks", "/audit"):
        assert not TAGS.search(people.page("admin", path, params=dict.fromkeys(filters, given)))
        labelled = people.get("admin", path, params={"label": f"note:{given}"[:130]})
        assert not TAGS.search(labelled.text)


def test_a_url_that_means_nothing_is_answered_by_a_page(people: People, jobs: Jobs) -> None:
    lists = [
        *("state=nothing", "since=2026-13-01", "since=yesterday", "text=a%00b", "after=job_x"),
        *("tenant=a b", "label=no-pair", "label=Team:x"),
        *("job=x", "job="),  # left out, it would mean all of them
    ]
    of_items = [f"/jobs/{jobs.failed()}?{name}=a%00b" for name in ("code", "custom_id")]
    for path, case in each([*(f"/jobs?{query}" for query in lists), *of_items]):
        with case:
            answer = people.get("acme" if path in of_items else "admin", path)
            assert answer.status_code == 422
            assert "text/html" in answer.headers["content-type"]


@pytest.mark.parametrize("moment", ["0001-01-01", "1969-12-31", "9999-12-31"])
def test_a_time_may_be_any(people: People, jobs: Jobs, moment: str) -> None:
    job_id = jobs.post()
    for name in ("since", "until"):
        page = people.page("acme", f"/jobs?{name}={moment}")
        assert (job_id in page) == ((name == "until") == moment.startswith("9"))


def test_a_job_is_found_by_its_name_and_a_click_on_its_labels(people: People, jobs: Jobs) -> None:
    found = jobs.post(name="Nightly reviews", labels={"team": "search", "run": "a&b"})
    other = jobs.post(labels={"team": "search"})
    rest = jobs.post()
    page = people.page("acme", "/jobs?state=queued&label=team:search")
    assert (found in page, other in page, rest in page) == (True, True, False)
    assert "Nightly reviews" in page
    [click] = re.findall(r'class="tag label" href="([^"]+)" title="run:a&amp;b"', page)
    assert click.endswith("/jobs?state=queued&amp;label=team%3Asearch&amp;label=run%3Aa%26b")
    narrowed = people.page("acme", html.unescape(click).removeprefix("/dashboard"))
    assert (found in narrowed, other in narrowed) == (True, False)
    without = 'href="/dashboard/jobs?state=queued&amp;label=team%3Asearch" aria-label="Remove'
    assert without in narrowed
    assert '<input type="hidden" name="label" value="run:a&amp;b">' in narrowed
    typed = people.page("acme", "/jobs?name=NIGHTLY&label=&label=team:search")
    assert (found in typed, other in typed) == (True, False)
    job = people.page("acme", f"/jobs/{found}")
    assert "Nightly reviews" in job
    assert 'href="/dashboard/jobs?label=run%3Aa%26b"' in job


def test_a_page_of_jobs_with_many_labels_stays_small(people: People, jobs: Jobs) -> None:
    labels = {f"label-{n:02}": "v" * 30 for n in range(16)}
    for _ in range(51):
        jobs.post(items=1, name="n" * 200, labels=labels)
    page = people.page("acme", "/jobs")
    assert page.count("+12") == 50
    assert len(page.encode()) < 110_000  # before it is compressed


def test_nobody_sees_what_is_anothers(people: People, jobs: Jobs) -> None:
    job_id = jobs.failed(webhook_url="https://x.example/")
    for path, case in each([*pages_of(job_id), f"/jobs/{job_id}/results"]):
        with case:
            answer = people.get("mallory", path)
            if job_id in path or path == "/tenants/acme":
                assert answer.status_code == 404
            else:
                assert job_id not in answer.text
    assert people.get("mallory", "/jobs?tenant=acme").status_code == 403
    assert people.get("mallory", "/tenants").headers["location"] == "/dashboard/tenants/mallory"


def test_where_a_job_ran_is_a_number_and_for_operators_a_host(people: People, jobs: Jobs) -> None:
    job_id = jobs.failed()
    with jobs.database.begin() as tx:
        number = workers.register(tx, "host-of-ours:42", "default", "cpu", ["echo@1"])
        tx.execute(text("UPDATE slices SET worker = :worker"), {"worker": number})
        launch = "7, :worker, 'echo', '1', 1, 'x', 9, 2, 1, 1, 1, 1, now()"
        tx.execute(text(f"INSERT INTO launches VALUES ({launch})"), {"worker": number})
        tx.execute(text("SET LOCAL session_replication_role = replica"))  # they are insert-only
        tx.execute(text("UPDATE results SET launch_id = 7"))
    for path, times in ((f"/jobs/{job_id}", 3), (f"/jobs/{job_id}/slices", 1)):
        assert people.page("operator", path).count("host-of-ours") == times
        assert "host-of-ours" not in people.page("acme", path)
    assert f"worker {number}" in people.page("acme", f"/jobs/{job_id}")


def test_operators_see_everybodys_and_one_tenants(people: People, jobs: Jobs) -> None:
    one, other = jobs.post(), jobs.post(tenant="mallory")
    for path, seen in (("/jobs", (True, True)), ("/jobs?tenant=acme", (True, False))):
        page = people.page("operator", path)
        assert (one in page, other in page) == seen
    assert people.page("operator", f"/jobs/{one}")


def test_who_may_only_read_has_no_buttons_and_is_refused(people: People, jobs: Jobs) -> None:
    job_id = jobs.failed(webhook_url="https://x.example/")
    for path, case in each(pages_of(job_id)):
        with case:
            answer = people.get("reader", path)
            if "delete" in path or "/all/" in path:
                assert answer.status_code == 403
                assert "lacks the scope submit" in answer.text
            else:
                assert answer.status_code == 200
                content = answer.text.split("<main")[1]
                assert 'method="post"' not in content
                assert "formaction" not in content
                assert 'name="job"' not in content  # boxes to tick
    verbs = ("cancel", "pause", "resume", "retry", "delete", "redeliver")
    acts = [
        *(f"/jobs/{job_id}/{verb}" for verb in verbs),
        *(f"/webhooks/{job_id}/redeliver", "/webhooks/secret/rotate", "/webhooks/endpoint"),
        *("/jobs/all/retry", "/keys", "/tenants/acme/limits"),
    ]
    for path, case in each(acts):
        with case:
            assert people.post("reader", path).status_code == 403
    assert jobs.state(job_id) == "completed"
    assert 'href="/dashboard/workers"' not in people.page("watcher", "/jobs")
    drained = people.post("watcher", "/workers/1/drain")
    assert (drained.status_code, "lacks the scope operate" in drained.text) == (403, True)


def test_each_verb_acts_and_is_noted(people: People, jobs: Jobs) -> None:
    job_id = jobs.post()
    states = {"pause": "paused", "resume": "queued", "cancel": "cancelled", "retry": "queued"}
    for verb, state in states.items():
        answer = people.post("acme", f"/jobs/{job_id}/{verb}")
        assert answer.status_code == 303, answer.text
        assert jobs.state(job_id) == state
    assert people.post("acme", f"/jobs/{job_id}/delete").status_code == 409
    jobs.act(job_id, "cancel")
    assert people.post("acme", f"/jobs/{job_id}/delete").headers["location"] == "/dashboard/jobs"
    assert people.get("acme", f"/jobs/{job_id}").status_code == 404
    noted = scalars(jobs.database, "SELECT act FROM audit ORDER BY id")
    assert noted == [f"job.{verb}" for verb in (*states, "delete")]


def test_an_item_shows_its_texts_and_gives_all_of_them(people: People, jobs: Jobs) -> None:
    job_id = jobs.failed(items=2)
    assert "too_long" in people.page("acme", f"/jobs/{job_id}/items/0")
    given = people.get("acme", f"/jobs/{job_id}/items/1/output")
    assert orjson.loads(given.content) == XSS
    assert given.headers["content-disposition"].startswith("attachment")
    assert people.get("acme", f"/jobs/{job_id}/items/2").status_code == 404
    found = people.get("acme", f"/jobs/{job_id}", params={"custom_id": f"row-1{XSS}"})
    assert found.headers["location"] == f"/dashboard/jobs/{job_id}/items/1"


def test_a_long_text_is_cut(people: People) -> None:
    row = submit(people.database, SAMPLES, "acme", Order("echo"), array=["x" * 60_000])
    page = people.page("acme", f"/jobs/{ids.show('job', row.id)}/items/0")
    assert "First 20,000 of 60,002 characters" in page
    assert len(page) < 40_000


def test_results_are_downloaded_as_the_api_sends_them(people: People, jobs: Jobs) -> None:
    job_id = jobs.failed()
    answer = people.get("reader", f"/jobs/{job_id}/results")
    assert [orjson.loads(line)["seq"] for line in answer.content.splitlines()] == [0, 1, 2]
    assert f'filename="{job_id}.ndjson"' in answer.headers["content-disposition"]
    assert len(people.page("reader", f"/jobs/{job_id}/results?outcome=failed").splitlines()) == 1


def test_a_webhook_is_sent_again(people: People, jobs: Jobs) -> None:
    job_id = jobs.failed(webhook_url="https://x.example/")
    assert people.post("mallory", f"/webhooks/{job_id}/redeliver").status_code == 404
    for path in (f"/jobs/{job_id}/redeliver", f"/webhooks/{job_id}/redeliver"):
        execute(jobs.database, "UPDATE webhook_deliveries SET state = 'failed', tries = 9")
        answer = people.post("acme", path, back="https://evil.example/")
        assert answer.headers["location"].startswith("/dashboard/")
        assert scalar(jobs.database, "SELECT state FROM webhook_deliveries") == "pending"


@pytest.mark.usefixtures("parts_of_streams")
@pytest.mark.parametrize("who", ["acme", "reader", "operator", "admin"])
def test_no_part_is_sent_that_the_page_does_not_show(people: People, jobs: Jobs, who: str) -> None:
    """Fragments that a page sends again."""
    job_id, stream = jobs.failed(), {"Accept": "text/event-stream"}
    for path in ("", "/models", "/models/echo@1", "/jobs", f"/jobs/{job_id}", "/webhooks"):
        page, parts = people.page(who, path), people.get(who, path, headers=stream)
        assert parts.status_code == 200, path
        sent = {name.removeprefix("live_") for name, html in parts.json().items() if html.strip()}
        assert sent <= {*re.findall(r'data-live="(\w+)"', page)}, path
        assert "live_" not in page
