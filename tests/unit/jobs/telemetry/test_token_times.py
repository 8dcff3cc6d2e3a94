"""Times of tokens, few however many came."""

from itertools import pairwise

from jobs.telemetry.token_times import MOST_TIMES, TokenTimes


def times(*steps_s: float) -> TokenTimes:
    found = TokenTimes()
    for one in steps_s:
        found.add(one)
    return found


def test_each_step_has_a_time_which_its_sequences_share() -> None:
    assert times(10.0, 10.5, 10.7).since_ms(9.0) == [1000, 1500, 1700]
    assert times(10.0, 10.0, 10.5, 10.5).since_ms(10.0) == [0, 500]


def test_a_long_request_has_evenly_spread_times() -> None:
    found = times(*map(float, range(1, 1001))).since_ms(1.0)
    assert MOST_TIMES // 2 < len(found) <= MOST_TIMES
    assert {after - before for before, after in pairwise(found)} == {16_000}
    assert (found[0], found[-1]) == (0, 992_000)


def test_the_longest_gap_is_that_of_all_steps() -> None:
    steady = [n / 100 for n in range(1, 200)]
    assert times(*steady, 7.0, 7.01).longest_gap_s == 7.0 - steady[-1]
    assert times(5.0).longest_gap_s == 0.0
