"""Slices follow the time that items take on the device; rows of a launch after memory ran out."""

from dataclasses import replace

import pytest

from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Limits, Model
from tests.unit.workers.scheduler.measured import measured
from workers.scheduler.batch_limit import BatchLimit
from workers.scheduler.cost import LaunchSize
from workers.scheduler.entries import Entry, Launch
from workers.scheduler.scheduler import Scheduler

MODEL = Model("m", "1", "function", limits=Limits(max_batch=32, slice_items=1000))


def scheduler(c0: float, c1: float, model: Model = MODEL) -> Scheduler:
    """One whose launches take c0 + c1 x rows seconds."""
    made = Scheduler(model)
    made.latency = made.policy.latency = measured(c0, c1)
    return made


def launch(made: Scheduler, rows: int, took_s: float, size: int = 1) -> None:
    entries = [Entry(None, n, "{}/0", 0, size, None, 0.0) for n in range(rows)]
    ended = Launch({}, "full", [], entries, 0.0, engine_s=took_s)
    made.ended(took_s, ended)


@pytest.mark.parametrize(
    ("c0", "c1", "items"),
    [
        (0.001, 0.0001, 1000),  # a tenth of a second
        (0.0, 0.002, 1000),  # two seconds
        (0.0, 0.01, 100),  # a second's worth
        (0.0, 1.0, 1),
        (0.0, 60.0, 1),
        (3.0, 0.001, 29),  # a launch's worth: a smaller one would take as long
    ],
)
def test_a_slice_that_takes_more_than_two_seconds_has_a_second_of_items(
    c0: float, c1: float, items: int
) -> None:
    assert scheduler(c0, c1).slice_items(1) == pytest.approx(items, rel=0.1)


def test_launches_side_by_side_share_the_items() -> None:  # as an upstream takes 64 at a time
    alone = Model("m", "1", "function", limits=Limits(max_batch=1, slice_items=100))
    assert scheduler(0.0, 1.0, alone).slice_items(64) == 100
    assert scheduler(0.0, 10.0, alone).slice_items(4) == 4


def test_a_claim_has_the_items_of_a_full_launch_or_of_a_quarter_of_a_second() -> None:
    large = Model("m", "1", "function", limits=Limits(max_batch=8192))
    assert Scheduler(large).claim_items() == 8192
    assert scheduler(0.002, 0.000_01, large).claim_items() == 8192
    assert scheduler(0.0, 0.000_1, large).claim_items() == pytest.approx(2500, rel=0.1)
    assert scheduler(0.0, 0.000_1).claim_items() == 0, "a slice fills a launch"
    smaller = replace(large, limits=replace(large.limits, slice_items=999))
    assert Scheduler(smaller).claim_items() == 0, "its entry bounds what is in memory"


def test_each_length_bucket_has_items_for_a_launch() -> None:
    minilm = replace(SAMPLES.resolve("minilm"), options={"layout": "padded"})
    made = Scheduler(minilm)
    for rows in (1, 2, 4):
        made.latency.observe(LaunchSize.alike(rows, minilm.buckets[1], minilm.buckets[1]), rows)
    assert made.slice_items(1) >= len(minilm.buckets)


def test_a_model_that_was_never_measured_begins_with_an_item_and_doubles_up_to_a_second() -> None:
    made, slow = Scheduler(MODEL), Scheduler(MODEL)
    made.seed([])
    for rows, next_items in ((1, 2), (2, 4), (4, 8), (8, 16), (16, 32), (32, 1000)):
        assert made.slice_items(1) == rows
        launch(made, rows, 0.01)
        assert made.slice_items(1) == next_items
    slow.seed([])
    launch(slow, 1, 1.0)
    launch(slow, 2, 2.0)
    assert slow.slice_items(1) == 1


def test_items_are_predicted_at_their_usual_size_and_without_a_warm_up_not_held_back() -> None:
    made = Scheduler(MODEL)
    for size in (100, 300, 200, 150, 250):
        for rows in (1, 8, 32):
            launch(made, rows, rows * size * 0.001, size)
    assert made.item_ms() == pytest.approx(200, rel=0.4)
    assert made.slice_items(1) <= 8
    assert Scheduler(MODEL).slice_items(1) == 1000


def test_memory_that_runs_out_halves_the_limit_which_full_launches_let_grow() -> None:
    limit = BatchLimit(64)
    limit.ran_out_of_memory(64)
    assert limit.rows == 32
    for _ in range(2000):
        limit.launched(limit.rows, clean=True)
    assert limit.rows == 64
    limit.ran_out_of_memory(1)
    assert limit.rows == 1
    limit = BatchLimit(64)
    limit.ran_out_of_memory(64)
    for _ in range(2000):
        limit.launched(31, clean=True)
        limit.launched(32, clean=False)
    assert limit.rows == 32


def test_a_device_that_never_holds_more_is_tried_ever_more_rarely() -> None:
    limit, failures = BatchLimit(64), 0
    for _ in range(20_000):
        if limit.rows > 40:
            limit.ran_out_of_memory(limit.rows)
            failures += 1
        else:
            limit.launched(limit.rows, clean=True)
    assert 2 <= failures <= 12
    assert limit.rows >= 20
