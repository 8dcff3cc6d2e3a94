"""One verb for all that a filter finds: what was confirmed is done, and nothing else."""

import html
import re
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Engine

from api.dashboard.pages.jobs import bulk_actions
from api.routes.jobs import verbs as use_cases
from tests.integration.api.dashboard.conftest import Jobs, People
from tests.support.stores.transactions import execute, fetch

HIDDEN = re.compile(r'name="(made_before|count)" value="([^"]*)"')


def confirmed(people: People, who: str, path: str) -> dict[str, str]:
    """What the page to confirm says."""
    answer = people.get(who, path)
    assert answer.status_code == 200, answer.text
    return {name: html.unescape(value) for name, value in HIDDEN.findall(answer.text)}


def in_words(answer: Any) -> dict[str, str]:
    """The facts of the page that says what was done."""
    assert answer.status_code == 200, answer.text
    return dict(re.findall(r"<dt>(.*?)</dt><dd>([\d,]+)", answer.text))


@pytest.mark.parametrize(
    ("verb", "state"), [("cancel", "cancelled"), ("pause", "paused"), ("retry", "queued")]
)
def test_all_that_were_counted_are_done_and_noted(
    people: People, jobs: Jobs, database: Engine, verb: str, state: str
) -> None:
    made = [jobs.failed() if verb == "retry" else jobs.post() for _ in range(3)]
    others = jobs.post(tenant="mallory")
    form = confirmed(people, "acme", f"/jobs/all/{verb}")
    assert form["count"] == "3"
    told = in_words(people.post("acme", f"/jobs/all/{verb}", **form))
    assert told["Confirmed"] == "3"
    assert list(told.values())[1:] == ["3", "0", "0"]
    assert {jobs.state(id) for id in made} == {state}
    assert jobs.state(others) == "queued"
    noted = fetch(database, "SELECT act, target FROM audit")
    assert sorted(row.target for row in noted) == sorted(made)
    assert {row.act for row in noted} == {f"job.{verb}"}


def test_resume_takes_those_that_are_paused(people: People, jobs: Jobs) -> None:
    paused, queued = jobs.act(jobs.post(), "pause"), jobs.post()
    form = confirmed(people, "acme", "/jobs/all/resume")
    assert form["count"] == "1"
    people.post("acme", "/jobs/all/resume", **form)
    assert jobs.state(paused) == jobs.state(queued) == "queued"


def test_those_that_are_ticked_alone(people: People, jobs: Jobs) -> None:
    one, other, third = (jobs.post() for _ in range(3))
    path = f"/jobs/all/cancel?job={one}&job={third}"
    form = confirmed(people, "acme", path)
    assert form["count"] == "2"
    people.post("acme", path, **form)
    assert [jobs.state(id) for id in (one, other, third)] == ["cancelled", "queued", "cancelled"]


def test_anothers_that_is_ticked_is_not_there(people: People, jobs: Jobs) -> None:
    hers = jobs.post()
    path = f"/jobs/all/cancel?job={hers}"
    assert confirmed(people, "mallory", path)["count"] == "0"
    form = {"made_before": "2099-01-01T00:00:00+00:00", "count": "9"}
    told = in_words(people.post("mallory", path, **form))
    assert told["Cancelled"] == "0"
    assert jobs.state(hers) == "queued"


def test_what_came_after_is_left_alone(people: People, jobs: Jobs) -> None:
    before = jobs.post()
    form = confirmed(people, "acme", "/jobs/all/cancel")
    after = jobs.post()
    people.post("acme", "/jobs/all/cancel", **form)
    assert (jobs.state(before), jobs.state(after)) == ("cancelled", "queued")


def test_more_than_were_confirmed_are_confirmed_anew(people: People, jobs: Jobs) -> None:
    one, other = jobs.act(jobs.post(), "pause"), jobs.post()
    form = confirmed(people, "acme", "/jobs/all/cancel?state=paused")
    assert form["count"] == "1"
    jobs.act(other, "pause")
    answer = people.post("acme", "/jobs/all/cancel?state=paused", **form)
    assert "there were 1, there are 2 now" in answer.text
    assert jobs.state(one) == jobs.state(other) == "paused"


def test_one_that_left_its_state_before_its_turn_is_left_as_it_is(
    people: People, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between being found and its turn: somebody resumed it, who wants it to run."""
    first, second = (jobs.act(jobs.post(), "pause") for _ in range(2))
    form = confirmed(people, "acme", "/jobs/all/cancel?state=paused")
    perform: Callable[..., str] = use_cases.perform
    turns = []

    def with_somebody_else(*arguments: Any) -> str:
        if not turns:  # `second` is newer: its turn is first
            jobs.act(first, "resume")
        turns.append(arguments)
        return perform(*arguments)

    monkeypatch.setattr(bulk_actions.verbs, "perform", with_somebody_else)
    told = in_words(people.post("acme", "/jobs/all/cancel?state=paused", **form))
    assert len(turns) == 2
    assert (told["Cancelled"], told["Skipped"]) == ("1", "1")
    assert (jobs.state(first), jobs.state(second)) == ("queued", "cancelled")


def test_who_is_deleted_meanwhile_is_told_as_changed(
    people: People, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = jobs.failed()
    form = confirmed(people, "acme", "/jobs/all/retry")
    perform: Callable[..., str] = use_cases.perform

    def after_it_went(*arguments: Any) -> str:
        jobs.act(gone, "delete")
        return perform(*arguments)

    monkeypatch.setattr(bulk_actions.verbs, "perform", after_it_went)
    told = in_words(people.post("acme", "/jobs/all/retry", **form))
    assert (told["Retried"], told["Skipped"]) == ("0", "1")


def test_what_is_refused_is_told_with_why(people: People, jobs: Jobs, database: Engine) -> None:
    good, pruned = jobs.failed(), jobs.failed()
    execute(
        database, "UPDATE jobs SET items_pruned = true WHERE id = :id", {"id": jobs.uuid(pruned)}
    )
    form = confirmed(people, "acme", "/jobs/all/retry")
    answer = people.post("acme", "/jobs/all/retry", **form)
    told = in_words(answer)
    assert (told["Retried"], told["Refused"]) == ("1", "1")
    assert "its items were removed at the end of their retention" in answer.text
    assert f'href="/dashboard/jobs/{pruned}"' in answer.text
    assert jobs.state(good) == "queued"


def test_what_one_request_has_no_time_for_another_goes_on_with(
    people: People, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [jobs.post() for _ in range(3)]
    form = confirmed(people, "acme", "/jobs/all/pause")
    monkeypatch.setattr(bulk_actions, "MAX_S", 0.0)
    path, requests = "/jobs/all/pause", 0
    while path:
        answer = people.post("acme", path, **form)
        requests += 1
        more = re.search(r'action="/dashboard(/jobs/all/pause\?after=[^"]+)"', answer.text)
        path = html.unescape(more[1]) if more else ""
    assert requests == 4  # the last finds that nobody is left
    assert {jobs.state(id) for id in made} == {"paused"}


@pytest.mark.parametrize(
    "form", [{}, {"made_before": "x", "count": "1"}, {"made_before": "2026-01-01", "count": "x"}]
)
def test_an_empty_form_does_nothing(people: People, jobs: Jobs, form: dict[str, str]) -> None:
    job_id = jobs.post()
    assert people.post("acme", "/jobs/all/cancel", **form).status_code == 400
    assert jobs.state(job_id) == "queued"
    assert people.post("acme", "/jobs/all/delete", **form).status_code == 422


def test_a_tenant_has_one_at_work_and_leaves_room_to_others(
    people: People, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request keeps a thread and a connection for 20 s: of those there are a few dozen."""
    jobs.post()
    others = jobs.post(tenant="mallory")
    forms = {who: confirmed(people, who, "/jobs/all/cancel") for who in ("acme", "mallory")}
    perform: Callable[..., str] = use_cases.perform
    meanwhile: list[int] = []

    def with_others(*arguments: Any) -> str:
        if not meanwhile:
            for who in ("acme", "mallory"):
                meanwhile.append(0)
                answer = people.post(who, "/jobs/all/cancel", **forms[who])
                meanwhile[-1] = answer.status_code
        return perform(*arguments)

    monkeypatch.setattr(bulk_actions.verbs, "perform", with_others)
    for _ in range(2):  # and there is room again
        assert people.post("acme", "/jobs/all/cancel", **forms["acme"]).status_code == 200
    assert meanwhile == [503, 200]
    assert jobs.state(others) == "cancelled"
