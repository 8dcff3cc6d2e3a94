"""Slices in parts: checkpoints of items that are being generated, and cuts at the claim."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, event

from jobs.models.inputs.generation import TokenUsage
from jobs.store.jobs import deletion, verbs
from jobs.store.queue import checkpoints, reap, settle, split
from jobs.store.queue import claim as claims
from jobs.store.queue import settle as settling
from jobs.store.queue.checkpoints import ChoiceProgress, Piece, Progress
from jobs.store.queue.claim import Lease
from jobs.store.queue.settle import Attempt, Result
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.store import ECHO, claim, count, job, lapse, post, results
from tests.support.stores.transactions import execute, fetch, scalar, transact


def piece(lease: Lease, seq: int = 0, position: int = 0, tokens: int = 2, **more: Any) -> Piece:
    its = range(position, position + tokens)
    written = " ".join(map(str, its)) + " "
    return Piece(
        lease.job_id, seq, more.pop("choice", 0), position, lease.tenant, its, written, **more
    )


def write(database: Engine, leases: Sequence[Lease], *pieces: Piece) -> int:
    return transact(database, checkpoints.write, leases, pieces)


def read(database: Engine, leases: Sequence[Lease]) -> dict[int, Progress]:
    return {seq: its for (_, seq), its in transact(database, checkpoints.read, leases).items()}


def result(lease: Lease, *seqs: int) -> list[Result]:
    return results(lease, *seqs, tokens=TokenUsage(3, 0, 2))


@pytest.fixture
def lease(database: Engine) -> Lease:
    """A slice of three items."""
    post(database, "a", "b", "c")
    (lease,) = claim(database)
    return lease


def test_pieces_are_read_as_one_output_of_each_choice(database: Engine, lease: Lease) -> None:
    write(database, [lease], piece(lease, cached_tokens=16, device_us=5), piece(lease, choice=1))
    more = piece(lease, position=2, logprobs='[[2,"2",-0.5,[]]]', device_us=6)
    last = piece(lease, choice=1, position=2, tokens=0, finish_reason="stop", stopped_by="!")
    write(database, [lease], more, last)
    (found,) = read(database, [lease]).values()
    first = ChoiceProgress(0, [0, 1, 2, 3], "0 1 2 3 ", [[2, "2", -0.5, []]], cached_tokens=16)
    second = ChoiceProgress(1, [0, 1], "0 1 " + " ", [], "stop", "!")
    assert found == Progress([first, second], 11)
    assert transact(database, checkpoints.read_item, lease.job_id, 0) == found
    assert transact(database, checkpoints.read_item, lease.job_id, 1) is None


def test_a_piece_with_an_unknown_commit_is_offered_again(database: Engine, lease: Lease) -> None:
    write(database, [lease], piece(lease))
    write(database, [lease], piece(lease, tokens=3))
    assert read(database, [lease])[0].choices[0].tokens == [0, 1, 2]


def test_a_lost_lease_writes_no_checkpoint(database: Engine, lease: Lease) -> None:
    transact(database, settle.settle, [replace(lease, epoch=7)], [], progress=[piece(lease)])
    assert count(database, "checkpoints") == 0
    write(database, [lease], piece(lease))
    lapse(database)
    assert transact(database, reap.reap, 0.0)
    assert write(database, [lease], piece(lease, position=2)) == 0
    (again,) = claim(database, owner=2)
    for other in (lease, replace(again, owner=1), replace(again, epoch=again.epoch - 1)):
        assert write(database, [other], piece(lease, position=2)) == 0
    assert read(database, [again])[0].choices[0].tokens == [0, 1]
    assert write(database, [again], piece(again, position=2)) == 1
    assert read(database, [again])[0].choices[0].tokens == [0, 1, 2, 3]


def test_a_checkpoint_goes_with_the_result_of_its_item(database: Engine, lease: Lease) -> None:
    write(database, [lease], piece(lease, 0), piece(lease, 1), piece(lease, 2))
    transact(database, settle.record, [lease], result(lease, 1))
    assert read(database, [lease]).keys() == {0, 2}
    write(database, [lease], piece(lease, 1, position=2))  # was collected before its end
    assert read(database, [lease]).keys() == {0, 2}
    transact(database, settle.settle, [lease], result(lease, 0, 2))
    assert job(database, lease.job_id).state == "completed"
    assert count(database, "checkpoints") == 0


def test_a_released_slice_leaves_its_last_checkpoint(database: Engine, lease: Lease) -> None:
    pieces = [piece(lease), replace(piece(lease), seq=99)]
    transact(database, settle.settle, [lease], result(lease, 1), progress=pieces)
    (again,) = claim(database)
    assert read(database, [again]).keys() == {0}
    assert count(database, "checkpoints") == 1


def test_an_item_that_failed_for_now_keeps_its_checkpoint(database: Engine, lease: Lease) -> None:
    """Text that was shown stays as it is."""
    write(database, [lease], piece(lease))
    failed = Attempt(lease.job_id, lease.tenant, 0, 1, '{"code": "transient"}', None, 0.0)
    transact(database, settle.settle, [lease], [], [failed])
    assert read(database, [lease]).keys() == {0}


@pytest.mark.parametrize("verb", [verbs.cancel, verbs.expire])
def test_verbs_that_end_items_end_checkpoints(database: Engine, lease: Lease, verb: Any) -> None:
    write(database, [lease], piece(lease))
    transact(database, verb, lease.job_id)
    transact(database, settle.settle, [lease], [], progress=[piece(lease, 1)])
    assert job(database, lease.job_id).state in ("cancelled", "expired")
    assert count(database, "checkpoints") == 0
    transact(database, verbs.retry, lease.job_id)
    assert read(database, claim(database)) == {}


def test_a_deleted_job_leaves_no_checkpoint(database: Engine, lease: Lease) -> None:
    forgotten = "INSERT INTO checkpoints VALUES (:job, 0, 0, 0, :tenant, '{1}', 'a')"
    transact(database, settle.settle, [lease], result(lease))
    execute(database, forgotten, {"job": lease.job_id, "tenant": lease.tenant})
    with database.begin() as tx:
        deletion.delete_jobs(tx, deletion.lock_ended(tx, [lease.job_id]))
    assert count(database, "checkpoints") == 0


def test_items_without_tokens_cost_no_look_at_checkpoints(database: Engine, lease: Lease) -> None:
    statements: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
        statements.append(statement)

    event.listen(database, "before_cursor_execute", note)
    transact(database, settle.settle, [lease], results(lease))
    assert statements
    assert not [one for one in statements if "checkpoints" in one]


# -- slices that are cut at their claim: what would run for long is left to others

ITEM_MS = 100.0


def claim_part(database: Engine, items: int, owner: int = 1) -> list[Lease]:
    """Claims a slice as a worker does whose slices have so many items."""
    with database.begin() as tx:
        leases = claims.claim(tx, owner, {ECHO: items}, 60, item_ms={ECHO: ITEM_MS})
        return [split.cut(tx, lease, items, "default") for lease in leases]


def rows(lease: Lease, *seqs: int) -> list[Result]:
    return results(lease, *seqs, device_us=round(ITEM_MS * 1000))


def settle_part(database: Engine, lease: Lease, *seqs: int) -> None:
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
    settle_part(database, second, 2, 3)
    settle_part(database, first, 0, 1)
    assert broken_invariants(database) == set()
    [last] = claim_part(database, 2)
    settle_part(database, last, 4)
    assert job(database, id).state == "completed"
    assert broken_invariants(database) == set()


def test_a_slice_that_fits_is_left_whole(database: Engine) -> None:
    id = post(database, *"abc")
    [lease] = claim_part(database, 3)
    assert (lease.stop, slices(database, id)) == (3, [(0, 3, "leased")])


def test_a_part_has_items_that_are_still_to_run(database: Engine) -> None:
    id = post(database, *"abcdefgh")
    [lease] = transact(database, claims.claim, 1, {ECHO: 8}, 60)
    settle_part(database, lease, 0, 1, 2, 4)
    [part] = claim_part(database, 2)
    assert (part.start, part.stop) == (0, 6), "3 and 5"
    assert [row[1] for row in transact(database, claims.read_inputs, [part])] == [3, 5]
    assert broken_invariants(database) == set()
    settle_part(database, part, 3, 5)
    assert slices(database, id) == [(0, 6, "done"), (6, 8, "ready")]
    assert broken_invariants(database) == set()


def test_the_tenant_is_charged_for_the_part_alone(database: Engine) -> None:
    post(database, *"abcdefgh")
    charged = "SELECT time_ms FROM turns WHERE tenant_id = 'default'"
    [part] = claim_part(database, 2)
    assert scalar(database, charged) == pytest.approx(2 * ITEM_MS)
    settle_part(database, part, 0, 1)
    assert scalar(database, charged) == pytest.approx(2 * ITEM_MS)


@pytest.mark.parametrize("verb", [verbs.cancel, verbs.pause])
def test_verbs_hold_for_the_rest(database: Engine, verb: object) -> None:
    id = post(database, *"abcd")
    [part] = claim_part(database, 1)
    transact(database, verb, id)  # type: ignore[operator]
    assert claim_part(database, 1) == []
    settle_part(database, part, 0)
    assert job(database, id).state == ("cancelled" if verb is verbs.cancel else "paused")
    assert broken_invariants(database) == set()
