"""Times at which a worker claims preemptively, and turns of suspects."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from jobs import ids
from jobs.models.model import Model
from jobs.store.queue import backlog, claim, split
from jobs.store.queue.claim import Lease
from workers.process.claiming import Claimer


def host(**said: Any) -> Mock:
    """A host whose capacity says so."""
    capacity = Mock(**{f"{name}.return_value": value for name, value in said.items()})
    return Mock(model=Model("m", "1", "echo"), capacity=capacity)


def claimer(*hosts: Mock) -> Claimer:
    database: Any = SimpleNamespace(begin=nullcontext)
    return Claimer(database, {str(n): one for n, one in enumerate(hosts)}, 1, 60.0, "default")


@pytest.mark.parametrize(
    ("hosts", "delay_s", "claims"),  # hosts: preemptive room, time until a launch ends, its time
    [
        ([], 0.05, True),  # nothing to preempt: looks again in a moment
        ([(8, 0.01, 0.02)], 0.05, True),  # short launches
        ([(8, 0.5, 1.0)], 0.47, True),  # just before the end of a long one
        ([(8, 0.01, 1.0)], 0.015, False),  # too late for it: the next has begun then
        ([(8, 0.5, 1.0), (8, 0.2, 1.0)], 0.17, True),  # the first that ends
        ([(8, 0.5, 1.0), (0, 0.2, 1.0)], 0.47, True),  # one without room doesn't count
    ],
)
def test_the_time_is_just_before_a_launch_ends(
    hosts: list[tuple[int, float, float]], delay_s: float, claims: bool
) -> None:
    made = claimer(*(host(preemptive_room=room, next_launch_end=end) for room, *end in hosts))
    assert made.preemption_delay_s() == (pytest.approx(delay_s), claims)


def lease(*, suspect: bool) -> Lease:
    return Lease(ids.new(), 0, 1, 1, "tenant", "0", "{}", suspect=suspect)


@pytest.fixture
def busy(monkeypatch: pytest.MonkeyPatch) -> Claimer:
    """A claimer whose models always have ordinary slices and suspects."""
    monkeypatch.setattr(backlog, "suspects_wait", lambda *_: True)
    monkeypatch.setattr(claim, "claim", lambda *_, **__: [lease(suspect=False)])
    monkeypatch.setattr(claim, "claim_suspect", lambda *_, **__: [lease(suspect=True)])
    return claimer(host(room=10, preemptive_room=10, item_ms=1.0, slice_items=10))


def test_suspects_keep_their_turn_while_what_is_in_flight_takes_long(busy: Claimer) -> None:
    in_flight = busy.claim([])
    assert not in_flight[0].suspect
    for _ in range(3):  # heartbeats within one slice
        busy.alternate_suspects(cast(Any, None))
        assert busy.claim(in_flight) == []
        assert busy.claim_preemptively(in_flight) == []
    assert busy.claim([])[0].suspect


def test_ordinary_slices_have_the_heartbeat_after_a_suspect(busy: Claimer) -> None:
    turns = []
    for _ in range(4):
        busy.alternate_suspects(cast(Any, None))
        turns.append(busy.claim([])[0].suspect)
        turns.append(busy.claim([])[0].suspect)
    assert turns == [True, False, False, False, True, False, False, False]


def test_suspects_wait_while_a_model_is_loaded(busy: Claimer) -> None:
    busy.loading = True
    busy.alternate_suspects(cast(Any, None))
    assert not busy.claim([])[0].suspect
    busy.loading = False
    busy.alternate_suspects(cast(Any, None))
    assert busy.claim([])[0].suspect


@pytest.mark.parametrize(
    ("room", "inputs", "part"),
    [
        (200, 150, None),  # it fits
        (100, 140, None),  # hardly more than a slice should have
        (100, 1000, 100),
        (60, 1000, 60),
        (1, 1000, 50),  # under backpressure there is room for one slice, not for one item
    ],
)
def test_a_slice_is_cut_into_parts_that_are_worth_a_claim(
    monkeypatch: pytest.MonkeyPatch, room: int, inputs: int, part: int | None
) -> None:
    lease = SimpleNamespace(inputs=inputs, each=1, model="0", suspect=False)
    cuts: list[int] = []
    monkeypatch.setattr(claim, "claim", lambda *_, **__: [lease])
    monkeypatch.setattr(split, "cut", lambda tx, lease, items, pool: cuts.append(items) or lease)
    assert claimer(host(room=room, slice_items=100)).claim([]) == [lease]
    assert cuts == ([] if part is None else [part])
