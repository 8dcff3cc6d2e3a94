"""Slices of a claim, as they finish."""

import threading

from jobs import ids
from jobs.store.queue.claim import Lease
from workers.items import in_flight as module
from workers.items.in_flight import ClaimedBatch, InFlightSlice, ItemOutcome, end_together


def claimed_batch(slices: int = 1, items: int = 1) -> ClaimedBatch:
    return ClaimedBatch(
        [Lease(ids.new(), n, n + items, 1, "t", "m@1", "{}") for n in range(slices)]
    )


def claimed_slice(items: int) -> tuple[ClaimedBatch, InFlightSlice]:
    """A claim of one slice, all of whose items are in flight."""
    claimed = claimed_batch(items=items)
    claimed.slices[0].expect(items)
    return claimed, claimed.slices[0]


def outcomes(*seqs: int) -> list[ItemOutcome]:
    return [ItemOutcome(seq, 1, 0.0, None, "A") for seq in seqs]


def test_slices_are_handed_over_as_they_finish_and_those_that_end_together_at_once() -> None:
    claimed = claimed_batch(2)
    first, second = claimed.slices
    first.expect(1)
    second.expect(0)
    assert claimed.wait() == [second]
    thread = threading.Thread(target=first.add, args=(outcomes(0),))
    thread.start()
    assert claimed.wait() == [first]
    thread.join()
    assert claimed.ended
    assert claimed.wait() == []
    claimed, other = claimed_batch(3), claimed_batch()
    slices = [*claimed.slices, *other.slices]
    for in_flight in slices:
        in_flight.expect(1)
    ended = [(in_flight, *outcomes(0)) for in_flight in slices]
    thread = threading.Thread(target=end_together, args=(ended,))
    thread.start()
    assert claimed.wait() == claimed.slices
    assert other.wait() == other.slices
    thread.join()
    assert claimed.ended


def due(claimed: ClaimedBatch) -> float:
    return claimed._record_in_s()  # noqa: SLF001 - otherwise the test would take as long


def test_outcomes_of_a_slice_that_goes_on_are_recorded_after_a_second(now: list[float]) -> None:
    claimed, slow = claimed_slice(9)
    assert due(claimed) == module.RECORD_AFTER_S, "there is nothing to record, but it looks again"
    slow.add(outcomes(0, 1))
    now[0] = 100.75
    slow.add(outcomes(2))
    assert due(claimed) == 0.25
    now[0] = 101.0
    assert claimed.wait() == []
    assert not claimed.ended
    [(whole, part)] = claimed.take_outcomes().items()
    assert (whole, whole.outcomes) == (slow, [])
    assert [one.seq for one in part.outcomes] == [0, 1, 2]
    assert due(claimed) == module.RECORD_AFTER_S
    slow.add(outcomes(3, 4, 5, 6, 7, 8))
    assert claimed.wait() == [slow]
    assert [one.seq for one in slow.outcomes] == [3, 4, 5, 6, 7, 8]


def test_a_slice_that_is_half_done_after_a_second_is_given_another(now: list[float]) -> None:
    claimed, quick = claimed_slice(8)
    quick.add(outcomes(0, 1, 2, 3))
    now[0] = 101.5
    assert due(claimed) == 0.5
    quick.add(outcomes(4, 5, 6, 7))
    assert claimed.wait() == [quick]
    assert claimed.take_outcomes() == {}


def test_what_could_not_be_recorded_is_settled_with_its_slice_and_a_list_is_recorded_once(
    now: list[float],
) -> None:
    claimed, slow = claimed_slice(3)
    slow.add(outcomes(0))
    parts = claimed.take_outcomes()
    slow.add(outcomes(1, 2))
    claimed.put_back(parts)
    assert claimed.wait() == [slow]
    assert sorted(one.seq for one in slow.outcomes) == [0, 1, 2]
    assert claimed.take_outcomes() == {}
    claimed, slow = claimed_slice(3)
    slow.expect_parts(0, 2)
    slow.expect_parts(1, 2)
    slow.add(outcomes(0, 1, 1, 2))
    [part] = claimed.take_outcomes().values()
    assert [one.seq for one in part.outcomes] == [1, 1, 2]
    slow.add(outcomes(0))
    assert slow.finished
    assert [one.seq for one in slow.outcomes] == [0, 0]
