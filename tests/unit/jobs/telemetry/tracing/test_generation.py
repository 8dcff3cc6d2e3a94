"""Spans of generations, with the attributes that OpenTelemetry names, and times of their tokens."""

from itertools import pairwise

import pytest

from jobs.telemetry.token_times import MOST_TIMES, TokenTimes
from jobs.telemetry.tracing import generation
from jobs.telemetry.tracing.context import new_trace
from jobs.telemetry.tracing.generation import Generated
from tests.unit.kept_spans import Kept

ONE = Generated(
    "m@1", "worker_1", 1.0, 5.0, 1.5, 2.0, 10, 4, 30, ["stop"], max_tokens=64, temperature=0.7
)


def test_a_generation_has_the_names_of_the_conventions_and_stages_without_a_gap(kept: Kept) -> None:
    parent = new_trace(1.0)
    generation.record(parent.pack(), ONE)
    whole, *stages = kept.spans
    assert (whole.name, whole.parent) == ("chat m@1", parent.span_id)
    assert (whole.since_s, whole.until_s) == (1.0, 5.0)
    found = {name: v for name, v in whole.attributes.items() if name.startswith("gen_ai.")}
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "millrace",
        "gen_ai.request.model": "m@1",
        "gen_ai.request.max_tokens": 64,
        "gen_ai.request.temperature": 0.7,
        "gen_ai.response.model": "m@1",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.usage.input_tokens": 10,
        "gen_ai.usage.cache_read.input_tokens": 4,
        "gen_ai.usage.output_tokens": 30,
    }
    assert [(one.name, one.since_s, one.until_s) for one in stages] == [
        ("queue", 1.0, 1.5), ("prefill", 1.5, 2.0), ("decode", 2.0, 5.0)
    ]  # fmt: skip
    assert whole.context
    assert {one.parent for one in stages} == {whole.context.span_id}


def test_a_call_that_never_began_was_in_the_queue_alone(kept: Kept) -> None:
    one = Generated("m@1", "worker_1", 1.0, 5.0, error="deadline_passed")
    generation.record(new_trace(1.0).pack(), one)
    whole, *stages = kept.spans
    assert [(each.name, each.until_s) for each in stages] == [("queue", 5.0)]
    assert whole.error == "deadline_passed"
    assert "gen_ai.request.max_tokens" not in whole.attributes


@pytest.mark.parametrize("packed", ["", new_trace(0.0).pack()], ids=["untraced", "unsampled"])
def test_what_is_not_sampled_is_not_recorded(kept: Kept, packed: str) -> None:
    generation.record(packed, ONE)
    assert kept.spans == []


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
