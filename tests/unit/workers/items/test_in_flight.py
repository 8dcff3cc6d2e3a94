"""Slices of a claim, as they finish."""

import threading

from jobs import ids
from jobs.store.queue.claim import Lease
from workers.items.in_flight import ClaimedBatch, ItemOutcome


def test_slices_are_handed_over_as_they_finish_and_then_no_more() -> None:
    claimed = ClaimedBatch([Lease(ids.new(), n, n + 1, 1, "t", "m@1", "{}") for n in (0, 1)])
    first, second = claimed.slices
    first.expect(1)
    second.expect(0)
    assert claimed.wait() == [second]
    thread = threading.Thread(target=first.add, args=([ItemOutcome(0, 1, 0.0, None, "A")],))
    thread.start()
    assert claimed.wait() == [first]
    thread.join()
    assert claimed.wait() == []
