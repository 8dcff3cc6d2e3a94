"""The limit of requests in flight, on a clock of the test's own."""

from dataclasses import dataclass, field
from random import Random

import pytest

from workers.engines.upstream.concurrency import CUT, Limit


@dataclass
class Server:
    """Serves as many at a time as it has slots for, and refuses others, or lets them queue."""

    slots: int
    latency_s: float = 0.5
    queues: bool = False
    random: Random = field(default_factory=lambda: Random(7))

    def took_s(self) -> float:
        return min(2.0, max(0.2, self.random.lognormvariate(0.0, 0.6) * self.latency_s))


def rounds(limit: Limit, server: Server, count: int, now_s: float = 0.0) -> list[int]:
    """The limit after each round of as many requests as it allows, all at a time."""
    seen = []
    for _ in range(count):
        began_s, allowed = now_s, limit.now
        slowness = max(1.0, allowed / server.slots) if server.queues else 1.0
        served = allowed if server.queues else min(allowed, server.slots)
        for n in range(served, allowed):
            limit.refused(began_s + n / 1e6, began_s)
        for end_s in sorted(began_s + server.took_s() * slowness for _ in range(served)):
            limit.answered(end_s, began_s, allowed)
            now_s = end_s + 0.001
        seen.append(limit.now)
    return seen


def test_it_doubles_in_each_round_until_it_is_refused() -> None:
    assert rounds(Limit(1, 4, 1000), Server(200), 6)[:5] == [8, 16, 32, 64, 128]


def test_requests_that_were_on_their_way_together_cut_it_once_and_it_grows_by_one_a_round() -> None:
    limit = Limit(1, 50, 100)
    for n in range(20):
        limit.refused(1.0 + n / 1000, 0.5)
    assert limit.now == int(CUT * 50)
    limit.refused(2.0, 1.5)
    assert limit.now == int(CUT * CUT * 50)
    limit = Limit(1, 10, 100)
    limit.refused(0.0, 0.0)
    assert limit.now == int(CUT * 10)
    assert rounds(limit, Server(100), 30, 1.0)[-1] == pytest.approx(int(CUT * 10) + 30, abs=2)


def test_it_stays_about_what_is_served_and_follows_a_capacity_that_drops_and_comes_back() -> None:
    limit, server = Limit(1, 4, 1000), Server(64)
    late = rounds(limit, server, 60)[20:]
    assert min(late) >= 48
    assert max(late) <= 66
    server.slots = 32
    assert max(rounds(limit, server, 20, 1000.0)[6:]) <= 34
    server.slots = 64
    assert rounds(limit, server, 40, 2000.0)[-1] >= 48


def test_answers_that_take_twice_as_long_show_a_queue() -> None:
    server = Server(16, queues=True)
    late = rounds(Limit(1, 4, 1000), server, 500)[50:]
    assert min(late) >= 8
    assert max(late) <= 48


def test_latencies_that_vary_cut_nothing_and_who_does_not_use_it_learns_of_no_more() -> None:
    assert rounds(Limit(1, 4, 64), Server(1000), 60)[10:] == [64] * 50
    limit = Limit(1, 10, 100)
    for n in range(100):
        limit.answered(n + 0.5, float(n), in_flight=1)
    assert limit.now == 10


@pytest.mark.parametrize(("least", "most"), [(1, 1), (3, 9)])
def test_it_keeps_its_bounds(least: int, most: int) -> None:
    limit = Limit(least, least, most)
    rounds(limit, Server(100), 20)
    assert limit.now == most
    for n in range(100):
        limit.refused(1000.0 + n, 1000.0 + n)
    assert limit.now == least


def test_an_upstream_that_became_slower_for_good_is_believed_after_a_while() -> None:
    limit, server = Limit(1, 4, 32), Server(1000)
    rounds(limit, server, 20)
    server.latency_s = 1.7  # beyond what is tolerated
    slow = rounds(limit, server, 120, 1000.0)
    assert min(slow) < 16
    assert slow[-1] == 32
