"""Whether an upstream is asked, on a clock of the test's own."""

from workers.engines.upstream.breaker import MOST_OPEN_S, Breaker


def opened(at_s: float = 0.0) -> Breaker:
    breaker = Breaker(3, 10.0)
    assert [breaker.fail(at_s, tried=False) for _ in range(3)] == [False, False, True]
    return breaker


def test_so_many_failures_in_a_row_open_it_until_one_request_tries_after_its_time() -> None:
    breaker = opened()
    assert not breaker.closed
    assert not breaker.begin(9.9)
    assert breaker.left_s(4.0) == 6.0
    assert breaker.begin(10.0)
    assert not breaker.begin(10.0)
    breaker.succeed()
    assert breaker.closed
    assert breaker.begin(10.0)


def test_an_answer_starts_the_count_anew_and_who_withdraws_leaves_the_try() -> None:
    breaker = Breaker(3, 10.0)
    for _ in range(5):
        breaker.fail(0.0, tried=False)
        breaker.fail(0.0, tried=False)
        breaker.succeed()
    assert breaker.closed
    breaker = opened()
    breaker.begin(10.0)
    breaker.withdraw()
    assert breaker.begin(10.1)


def test_where_that_one_fails_it_opens_again_for_as_long() -> None:
    breaker = opened()
    breaker.begin(10.0)
    assert not breaker.fail(12.0, tried=True), "it was open before"
    assert breaker.left_s(12.0) == 10.0
    assert not breaker.begin(21.9)
    assert breaker.begin(22.0)


def test_of_requests_from_before_failures_prolong_nothing_and_an_answer_closes_it() -> None:
    breaker = opened()
    breaker.fail(9.0, tried=False)
    assert breaker.left_s(9.0) == 1.0
    assert breaker.begin(10.0)
    breaker.fail(11.0, tried=False)
    assert breaker.trying
    assert breaker.left_s(11.0) == 0
    breaker = opened()
    breaker.succeed()
    assert breaker.begin(1.0)


def test_it_stays_open_for_as_long_as_it_is_asked_to_within_reason() -> None:
    for pause_s, left_s in ((1.0, 1.0), (0.0, 0.1), (120.0, 120.0), (1e9, MOST_OPEN_S)):
        breaker = Breaker(1, 10.0)
        assert breaker.fail(0.0, tried=False, pause_s=pause_s)
        assert breaker.left_s(0.0) == left_s
