"""Times at which a worker claims preemptively."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from workers.process.claiming import Claimer


def claimer(*hosts: tuple[int, float, float]) -> Claimer:
    """One whose hosts have (preemptive room, seconds until a launch ends, its duration)."""
    table: Any = {
        str(n): SimpleNamespace(
            capacity=SimpleNamespace(
                preemptive_room=lambda room=room: room,
                next_launch_end=lambda left_s=left_s, took_s=took_s: (left_s, took_s),
            )
        )
        for n, (room, left_s, took_s) in enumerate(hosts)
    }
    return Claimer(cast(Any, None), table, 1, 60.0, "default")


@pytest.mark.parametrize(
    ("hosts", "delay_s", "claims"),
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
    assert claimer(*hosts).preemption_delay_s() == (pytest.approx(delay_s), claims)
