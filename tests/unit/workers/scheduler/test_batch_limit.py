"""Rows of a launch after memory ran out."""

from workers.scheduler.batch_limit import BatchLimit


def test_memory_that_runs_out_halves_the_limit_which_grows_again_to_the_configured_one() -> None:
    limit = BatchLimit(64)
    limit.ran_out_of_memory(64)
    assert limit.rows == 32
    for _ in range(2000):
        limit.launched(limit.rows, clean=True)
    assert limit.rows == 64
    limit.ran_out_of_memory(1)
    assert limit.rows == 1


def test_only_full_launches_without_an_error_let_it_grow() -> None:
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
