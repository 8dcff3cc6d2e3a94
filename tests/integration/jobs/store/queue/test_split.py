"""Slices that are cut at their claim: what would run for long is left to others."""

from uuid import UUID

import pytest
from sqlalchemy import Engine

from jobs.store.jobs import verbs
from jobs.store.queue import claim as claims
from jobs.store.queue import settle as settling
from jobs.store.queue import split
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Result
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import ECHO, job, post, results
from tests.support.stores.transactions import fetch, scalar, transact

ITEM_MS = 100.0


def claim_part(database: Engine, items: int, owner: int = 1) -> list[Lease]:
    """Claims a slice as a worker does whose slices have so many items."""
    with database.begin() as tx:
        leases = claims.claim(tx, owner, {ECHO: items}, 60, item_ms={ECHO: ITEM_MS})
        return [split.cut(tx, lease, items, "default") for lease in leases]


def rows(lease: Lease, *seqs: int) -> list[Result]:
    return results(lease, *seqs, device_us=round(ITEM_MS * 1000))


def settle(database: Engine, lease: Lease, *seqs: int) -> None:
    assert transact(database, settling.settle, [lease], rows(lease, *seqs)) == 1


def slices(database: Engine, id: UUID) -> list[tuple[int, int, str]]:
    query = "SELECT start, stop, state FROM slices WHERE job_id = :job ORDER BY start"
    return [tuple(row) for row in fetch(database, query, {"job": id})]


def test_two_workers_take_parts_of_one_slice(database: Engine) -> None:
    id = post(database, *"abcde")
    [first], [second] = claim_part(database, 2), claim_part(database, 2, owner=2)
    assert (first.start, first.stop, second.start, second.stop) == (0, 2, 2, 4)
    assert slices(database, id) == [(0, 2, "leased"), (2, 4, "leased"), (4, 5, "ready")]
    assert (first.epoch, second.epoch) == (1, 1)
    settle(database, second, 2, 3)
    settle(database, first, 0, 1)
    assert broken_invariants(database) == set()
    [last] = claim_part(database, 2)
    settle(database, last, 4)
    assert job(database, id).state == "completed"
    assert broken_invariants(database) == set()


def test_a_slice_that_fits_is_left_whole(database: Engine) -> None:
    id = post(database, *"abc")
    [lease] = claim_part(database, 3)
    assert (lease.stop, slices(database, id)) == (3, [(0, 3, "leased")])


def test_a_part_has_items_that_are_still_to_run(database: Engine) -> None:
    id = post(database, *"abcdefgh")
    [lease] = transact(database, claims.claim, 1, {ECHO: 8}, 60)
    settle(database, lease, 0, 1, 2, 4)
    [part] = claim_part(database, 2)
    assert (part.start, part.stop) == (0, 6), "3 and 5"
    assert [row[1] for row in transact(database, claims.read_inputs, [part])] == [3, 5]
    assert broken_invariants(database) == set()
    settle(database, part, 3, 5)
    assert slices(database, id) == [(0, 6, "done"), (6, 8, "ready")]
    assert broken_invariants(database) == set()


def test_the_tenant_is_charged_for_the_part_alone(database: Engine) -> None:
    post(database, *"abcdefgh")
    charged = "SELECT time_ms FROM turns WHERE tenant_id = 'default'"
    [part] = claim_part(database, 2)
    assert scalar(database, charged) == pytest.approx(2 * ITEM_MS)
    settle(database, part, 0, 1)
    assert scalar(database, charged) == pytest.approx(2 * ITEM_MS)


@pytest.mark.parametrize("verb", [verbs.cancel, verbs.pause])
def test_verbs_hold_for_the_rest(database: Engine, verb: object) -> None:
    id = post(database, *"abcd")
    [part] = claim_part(database, 1)
    transact(database, verb, id)  # type: ignore[operator]
    assert claim_part(database, 1) == []
    settle(database, part, 0)
    assert job(database, id).state == ("cancelled" if verb is verbs.cancel else "paused")
    assert broken_invariants(database) == set()
