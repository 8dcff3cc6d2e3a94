"""Jobs by what people look for, and what is inside one: what is found is what was asked for."""

from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import Engine

from jobs import clock, ids
from jobs.models.builtin_models import SAMPLES
from jobs.store.jobs import detail, read, search, verbs
from jobs.store.jobs.search import Filter
from jobs.store.queue import settle
from jobs.store.queue.settle import Attempt
from jobs.store.tenancy import EVERYBODY
from jobs.usecases.submit import Order, submit
from tests.support.cases import each
from tests.support.stores.store import claim, count, results
from tests.support.stores.transactions import execute, transact

HOSTILE = ("'", "%", "_", "\\", "'; DROP TABLE jobs; --", ":word_0", "%(x)s", "\\%", '"', "${x}")


def post(database: Engine, *, tenant: str = "acme", items: int = 1, **order: object) -> UUID:
    asked = Order("echo", **order)  # type: ignore[arg-type]
    lines = [{"custom_id": f"row-{n}", "input": f"text {n}"} for n in range(items)]
    id: UUID = submit(database, SAMPLES, tenant, asked, array=lines).id
    return id


def found(
    database: Engine, tenant: str = EVERYBODY, limit: int = 99, **asked: object
) -> list[UUID]:
    filter = Filter(**asked)  # type: ignore[arg-type]
    with database.begin() as tx:
        rows = search.page(tx, tenant, filter, limit=limit)
        counts = search.counts(tx, tenant, filter)
        named = search.matching_ids(tx, tenant, filter, search.now(tx), after=None, limit=limit)
    assert named == [row.id for row in rows]
    assert limit < 99 or sum(counts.values()) == len(named)
    return named


def test_the_newest_come_first_and_each_once_over_pages(database: Engine) -> None:
    made = [post(database) for _ in range(7)]
    pages, after = [], None
    with database.begin() as tx:
        while rows := search.page(tx, "acme", Filter(), after=after, limit=3):
            pages.append([row.id for row in rows])
            after = rows[-1].id
    assert [len(page) for page in pages] == [3, 3, 1]
    assert [id for page in pages for id in page] == made[::-1]


def test_nobody_finds_what_is_anothers(database: Engine) -> None:
    mine, hers = post(database), post(database, tenant="alice", metadata={"who": "alice"})
    assert found(database, "acme") == [mine]
    assert found(database, "acme", text="alice") == []
    assert found(database, "acme", ids=(hers,)) == []
    assert found(database, EVERYBODY) == [hers, mine]


def test_a_state_or_several(database: Engine) -> None:
    queued, paused, ended = post(database), post(database), post(database)
    transact(database, verbs.pause, paused)
    transact(database, verbs.cancel, ended)
    assert found(database, states=("paused",)) == [paused]
    assert found(database, states=("queued", "cancelled")) == [ended, queued]
    assert found(database, unsuccessful=True) == [ended]
    counts = transact(database, search.counts, "acme", Filter())
    assert counts == {"queued": 1, "paused": 1, "cancelled": 1}


def test_a_job_is_found_by_each_of_its_fields(database: Engine) -> None:
    one = post(database, metadata={"Project": "Search", "run": "42"})
    version = transact(database, read.one, "acme", one).version
    soon, before = clock.now() + timedelta(seconds=5), clock.ago(60)
    asked: list[tuple[dict[str, object], bool]] = [
        ({"model": "echo"}, True),
        ({"model": "echo", "version": version}, True),
        ({"model": "echo", "version": "no such"}, False),
        ({"model": "ech"}, False),
        ({"since": before, "until": soon}, True),
        ({"since": soon}, False),
        ({"until": before}, False),
        ({"text": "search project"}, True),
        ({"text": ids.show("job", one)}, True),
        ({"text": f" {ids.show('batch', one)} "}, True),
    ]
    for (terms, is_found), case in each(asked):
        with case:
            assert (one in found(database, **terms)) == is_found
    post(database, metadata={"project": "mail"})
    assert found(database, text="search project") == [one]
    assert found(database, text="search mail") == []
    assert found(database, text=ids.show("job", one)) == [one]


def test_labels_all_of_them_and_a_part_of_the_name(database: Engine) -> None:
    one = post(database, name="Nightly 100%", labels={"team": "search", "stage": "prod"})
    two = post(database, name="nightly", labels={"team": "search"})
    hers = post(database, tenant="alice", labels={"team": "search"})
    team, stage = ("team", "search"), ("stage", "prod")
    assert found(database, labels=(team,)) == [hers, two, one]
    assert found(database, "acme", labels=(team,)) == [two, one]
    assert found(database, "acme", labels=(stage, team)) == [one]
    assert found(database, "acme", labels=(team,), name="0%") == [one]
    assert found(database, labels=(("team", "sea"),)) == []
    assert found(database, name="NIGHT") == [two, one]


@pytest.mark.parametrize("hostile", HOSTILE)
def test_what_is_typed_stands_for_itself(database: Engine, hostile: str) -> None:
    post(database, metadata={"plain": "nothing of the kind"})
    if hostile not in ('"', "_", ":word_0"):  # JSON has quotes of its own
        assert found(database, text=hostile, model="") == []
    one = post(database, metadata={"odd": f"a{hostile}b"})
    if not {'"', "\\"} & set(hostile):  # which JSON writes otherwise
        assert one in found(database, text=hostile)
    assert found(database, model=hostile) == found(database, version=hostile) == []
    assert found(database, name=hostile) == found(database, labels=(("a", hostile),)) == []
    assert count(database, "jobs") == 2


def test_only_those_that_were_there_are_named(database: Engine) -> None:
    one = post(database)
    then = transact(database, search.now)
    post(database)
    named = transact(database, search.matching_ids, "acme", Filter(), then, after=None, limit=9)
    assert named == [one]
    assert sum(transact(database, search.counts, "acme", Filter(), then).values()) == 1


# -- inside a job


@pytest.fixture
def mixed(database: Engine) -> UUID:
    """120 items: some failed, one of them after an attempt."""
    id = post(database, items=120)
    error = '{"code":"too_long","message":"<b>long</b>"}'
    other = '{"code":"engine_error","message":"x"}'
    leases = claim(database, room=60)
    rows = [row for lease in leases for row in results(lease)]
    for row in rows:
        row.launch_id = 7
        if row.seq in (3, 9, 11):
            row.outcome, row.output, row.error = "failed", None, other if row.seq == 9 else error
    attempt = Attempt(id, "acme", 3, 1, other, 7, 0)
    transact(database, settle.settle, leases, rows, [attempt])
    return id


def seqs(database: Engine, job: UUID, **asked: object) -> list[int]:
    rows = transact(database, detail.items, "acme", job, limit=50, **asked)
    return [row.seq for row in rows]


def test_items_by_outcome_and_error(database: Engine, mixed: UUID) -> None:
    assert seqs(database, mixed) == list(range(50))
    assert seqs(database, mixed, after=100) == list(range(101, 120))
    assert seqs(database, mixed, outcome="failed") == [3, 9, 11]
    assert seqs(database, mixed, outcome="failed", code="too_long") == [3, 11]
    assert seqs(database, mixed, outcome="failed", after=3, code="too_long") == [11]
    assert seqs(database, mixed, outcome="failed", code="' OR true --") == []
    assert 3 not in seqs(database, mixed, outcome="succeeded")
    for outcome in ("cancelled", "expired"):
        assert seqs(database, mixed, outcome=outcome) == []
    cancelled = post(database, items=3)
    transact(database, verbs.cancel, cancelled)
    assert seqs(database, cancelled, outcome="cancelled") == [0, 1, 2]


def test_errors_are_counted_by_code_with_an_example(database: Engine, mixed: UUID) -> None:
    rows = transact(database, detail.error_codes, "acme", mixed)
    told = [(row.code, row.items, row.first_seq, row.first_message) for row in rows]
    assert told == [("too_long", 2, 3, "<b>long</b>"), ("engine_error", 1, 9, "x")]


def test_nobody_sees_inside_anothers_job(database: Engine, mixed: UUID) -> None:
    with database.begin() as tx:
        assert detail.error_codes(tx, "mallory", mixed) == []
        assert detail.find_seq(tx, "mallory", mixed, "row-7") is None
        assert detail.slices(tx, "mallory", mixed, limit=99) == []
        assert detail.runs(tx, "mallory", mixed, 99) == []


def test_an_item_by_its_custom_id_and_its_attempts(database: Engine, mixed: UUID) -> None:
    assert transact(database, detail.find_seq, "acme", mixed, "row-7") == 7
    assert transact(database, detail.find_seq, "acme", mixed, "row-777") is None
    assert [row.n for row in transact(database, detail.attempts, "acme", mixed, 3)] == [1]


def test_slices_tell_who_had_them(database: Engine, mixed: UUID) -> None:
    with database.begin() as tx:
        slices = detail.slices(tx, "acme", mixed, limit=99)
        states = detail.slice_states(tx, "acme", mixed)
        runs = detail.runs(tx, "acme", mixed, 99)
    assert [row.start for row in slices] == sorted(row.start for row in slices)
    assert sum(row.stop - row.start for row in slices) == 120
    assert {row.worker for row in runs} == {1}
    assert sum(row.slices for row in states) == len(slices)
    assert sum(row.deliveries for row in states) == len(runs) == sum(s.epoch for s in slices)


def test_launches_with_how_many_of_the_jobs_items_they_had(database: Engine, mixed: UUID) -> None:
    launch = "INSERT INTO launches VALUES (7, 1, 'echo', '1', 1, 'x', 9, 2, 1, 1, 1, 1, now())"
    execute(database, launch)
    rows = transact(database, detail.launches, "acme", mixed, 9)
    ended = transact(database, read.one, "acme", mixed)
    assert [(row.id, row.own) for row in rows] == [(7, ended.succeeded + ended.failed)]
