"""Inputs of calls as requests."""

import pytest

from jobs import clock
from jobs.calls.messages import Call
from workers.generation.preparation import call_requests


@pytest.mark.parametrize("ahead_s", [-2.0, 2.0])
def test_no_call_came_later_than_now(ahead_s: float) -> None:
    now_s = clock.monotonic()
    at_ms = (now_s + ahead_s) * 1000
    call = Call("a", "{}/0", "tenant", "one", 1, "api-1", enqueued_ms=at_ms, deadline_ms=at_ms)
    [request], replies = call_requests([call], [()], {})
    assert not replies
    assert min(now_s, at_ms / 1000) <= request.arrived_s <= clock.monotonic()
