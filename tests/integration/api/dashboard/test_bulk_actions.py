"""One verb for all that a filter finds: what was confirmed is done, and nothing else."""

import html
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from api.dashboard.pages.jobs import bulk_actions
from api.routes.jobs import verbs as use_cases
from tests.integration.api.conftest import Jobs, People
from tests.support.cases import each
from tests.support.stores.transactions import execute, fetch

HIDDEN = re.compile(r'name="(made_before|count)" value="([^"]*)"')
ALL, PAUSED = "/jobs/all/cancel", "/jobs/all/cancel?state=paused"


def confirmed(people: People, who: str, path: str, count: int) -> dict[str, str]:
    """What the page to confirm says."""
    form = {name: html.unescape(value) for name, value in HIDDEN.findall(people.page(who, path))}
    assert form["count"] == str(count)
    return form


def in_words(answer: Any) -> dict[str, str]:
    """The facts of the page that says what was done."""
    assert answer.status_code == 200, answer.text
    return dict(re.findall(r"<dt>(.*?)</dt><dd>([\d,]+)", answer.text))


def states(jobs: Jobs, ids: Sequence[str]) -> list[str]:
    return [jobs.state(id) for id in ids]


@pytest.fixture
def before_each(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Does something before the turn of each job."""
    perform: Callable[..., str] = use_cases.perform

    def install(act: Callable[[], object]) -> None:
        def perform_after_it(*arguments: Any) -> str:
            act()
            return perform(*arguments)

        monkeypatch.setattr(bulk_actions.verbs, "perform", perform_after_it)

    return install


@pytest.mark.parametrize(
    ("verb", "state"), [("cancel", "cancelled"), ("pause", "paused"), ("retry", "queued")]
)
def test_all_that_were_counted_are_done_and_noted(
    people: People, jobs: Jobs, verb: str, state: str
) -> None:
    made = [jobs.failed() if verb == "retry" else jobs.post() for _ in range(3)]
    others = jobs.post(tenant="mallory")
    form = confirmed(people, "acme", f"/jobs/all/{verb}", 3)
    told = in_words(people.post("acme", f"/jobs/all/{verb}", **form))
    assert told["Confirmed"] == "3"
    assert list(told.values())[1:] == ["3", "0", "0"]
    assert states(jobs, [*made, others]) == [state] * 3 + ["queued"]
    noted = fetch(jobs.database, "SELECT act, target FROM audit")
    assert sorted(map(tuple, noted)) == sorted((f"job.{verb}", id) for id in made)


def test_resume_takes_those_that_are_paused(people: People, jobs: Jobs) -> None:
    made = jobs.act(jobs.post(), "pause"), jobs.post()
    form = confirmed(people, "acme", "/jobs/all/resume", 1)
    people.post("acme", "/jobs/all/resume", **form)
    assert states(jobs, made) == ["queued", "queued"]


def test_those_that_are_ticked_alone(people: People, jobs: Jobs) -> None:
    one, other, third = made = [jobs.post() for _ in range(3)]
    path = f"{ALL}?job={one}&job={third}"
    people.post("acme", path, **confirmed(people, "acme", path, 2))
    assert states(jobs, made) == ["cancelled", "queued", "cancelled"]
    path = f"{ALL}?job={other}"
    confirmed(people, "mallory", path, 0)  # it is another's
    form = {"made_before": "2099-01-01T00:00:00+00:00", "count": "9"}
    assert in_words(people.post("mallory", path, **form))["Cancelled"] == "0"
    assert jobs.state(other) == "queued"


def test_what_came_after_is_left_alone(people: People, jobs: Jobs) -> None:
    before = jobs.post()
    form = confirmed(people, "acme", ALL, 1)
    after = jobs.post()
    people.post("acme", ALL, **form)
    assert states(jobs, (before, after)) == ["cancelled", "queued"]


def test_more_than_were_confirmed_are_confirmed_anew(people: People, jobs: Jobs) -> None:
    made = jobs.act(jobs.post(), "pause"), jobs.post()
    form = confirmed(people, "acme", PAUSED, 1)
    jobs.act(made[1], "pause")
    assert "there were 1, there are 2 now" in people.post("acme", PAUSED, **form).text
    assert states(jobs, made) == ["paused", "paused"]


def test_one_that_left_its_state_before_its_turn_is_left_as_it_is(
    people: People, jobs: Jobs, before_each: Callable[..., None]
) -> None:
    """Between being found and its turn: somebody resumed it, who wants it to run."""
    made = [jobs.act(jobs.post(), "pause") for _ in range(2)]
    form = confirmed(people, "acme", PAUSED, 2)
    turns = []

    def resume_the_older() -> None:
        if not turns:  # the newer one has the first turn
            jobs.act(made[0], "resume")
        turns.append(1)

    before_each(resume_the_older)
    told = in_words(people.post("acme", PAUSED, **form))
    assert (len(turns), told["Cancelled"], told["Skipped"]) == (2, "1", "1")
    assert states(jobs, made) == ["queued", "cancelled"]


def test_who_is_deleted_meanwhile_is_told_as_changed(
    people: People, jobs: Jobs, before_each: Callable[..., None]
) -> None:
    gone = jobs.failed()
    form = confirmed(people, "acme", "/jobs/all/retry", 1)
    before_each(lambda: jobs.act(gone, "delete"))
    told = in_words(people.post("acme", "/jobs/all/retry", **form))
    assert (told["Retried"], told["Skipped"]) == ("0", "1")


def test_what_is_refused_is_told_with_why(people: People, jobs: Jobs) -> None:
    good, pruned = jobs.failed(), jobs.failed()
    query = "UPDATE jobs SET items_pruned = true WHERE id = :id"
    execute(jobs.database, query, {"id": jobs.uuid(pruned)})
    form = confirmed(people, "acme", "/jobs/all/retry", 2)
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
    path, requests = "/jobs/all/pause", 0
    form = confirmed(people, "acme", path, 3)
    monkeypatch.setattr(bulk_actions, "MAX_S", 0.0)
    while path:
        answer = people.post("acme", path, **form)
        requests += 1
        more = re.search(r'action="/dashboard(/jobs/all/pause\?after=[^"]+)"', answer.text)
        path = html.unescape(more[1]) if more else ""
    assert requests == 4  # the last finds that nobody is left
    assert states(jobs, made) == ["paused"] * 3


def test_an_empty_form_does_nothing(people: People, jobs: Jobs) -> None:
    job_id = jobs.post()
    broken = {"made_before": "x", "count": "1"}, {"made_before": "2026-01-01", "count": "x"}
    for form, case in each([{}, *broken]):
        with case:
            assert people.post("acme", ALL, **form).status_code == 400
            assert jobs.state(job_id) == "queued"
            assert people.post("acme", "/jobs/all/delete", **form).status_code == 422


def test_a_tenant_has_one_at_work_and_leaves_room_to_others(
    people: People, jobs: Jobs, before_each: Callable[..., None]
) -> None:
    """A request keeps a thread and a connection for 20 s: of those there are a few dozen."""
    jobs.post()
    others = jobs.post(tenant="mallory")
    forms = {who: confirmed(people, who, ALL, 1) for who in ("acme", "mallory")}
    meanwhile: list[int] = []

    def post_others() -> None:
        if not meanwhile:
            for who, form in forms.items():
                meanwhile.append(0)
                meanwhile[-1] = people.post(who, ALL, **form).status_code

    before_each(post_others)
    for _ in range(2):  # and there is room again
        assert people.post("acme", ALL, **forms["acme"]).status_code == 200
    assert meanwhile == [503, 200]
    assert jobs.state(others) == "cancelled"
