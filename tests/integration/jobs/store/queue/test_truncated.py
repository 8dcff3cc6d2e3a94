"""Items whose text was cut: counted by their job once, whatever is delivered again."""

import json
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from jobs.store.jobs import read, verbs
from jobs.store.queue import reap, settle
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import claim, job, lapse, post, result_chunks, results
from tests.support.stores.transactions import transact


def lines(database: Engine, id: UUID) -> list[Any]:
    raw = b"".join(result_chunks(database, id))
    return [json.loads(line)["usage"] for line in raw.splitlines()]


def test_cuts_are_counted_by_the_job_once_and_stay_through_a_retry(database: Engine) -> None:
    id = post(database, "a", "b", "c", "d")
    (lease,) = claim(database)
    first, second = results(lease, 0, truncated=7), results(lease, 1)
    assert transact(database, settle.record, [lease], [*first, *second]) == 1
    assert job(database, id).truncated == 1
    assert transact(database, settle.record, [lease], [*first, *second]) == 1  # delivered again
    lapse(database)
    transact(database, reap.reap, 0.0)
    assert transact(database, settle.settle, [lease], results(lease, 2, truncated=9)) == 0  # lost
    assert job(database, id).truncated == 1
    (again,) = claim(database, owner=2)
    rest = [*results(again, 2, truncated=5), *results(again, 3, outcome="failed")]
    transact(database, settle.settle, [again], [*results(again, 0, truncated=70), *rest])
    ended = job(database, id)
    assert (ended.state, ended.succeeded, ended.failed, ended.truncated) == ("completed", 3, 1, 2)
    cuts = [usage.get("truncated") for usage in lines(database, id)]
    assert cuts == [7, None, 5, None]

    transact(database, verbs.retry, id)
    assert job(database, id).truncated == 2
    (more,) = claim(database)
    transact(database, settle.settle, [more], results(more, 3, truncated=1))
    ended = job(database, id)
    assert (ended.succeeded, ended.truncated) == (4, 3)
    assert [row.truncated for row in read.result_rows(database, ended)] == [7, None, 5, 1]
    assert not broken_invariants(database)
