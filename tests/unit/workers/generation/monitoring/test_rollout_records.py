"""Records of calls that generate."""

from decimal import Decimal
from typing import Any

import orjson
import pytest

from jobs.calls.messages import Reply
from jobs.models.inputs.generation import TokenUsage
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.rollouts.cohorts import Cohort
from tests.support.cases import each
from workers.generation.monitoring.rollout_records import record_of

MODEL = Model("m", "2", "echo_chat")
COHORT = Cohort("canary", "r", "ann")


def reply(*choices: dict[str, Any]) -> Reply:
    output = orjson.dumps({"choices": [{"finish_reason": "stop", **one} for one in choices]})
    timing = {"ttft_ms": 5.0, "itl_ms": 2.0, "decode_ms": 20.0}
    return Reply("a", output, None, 30, timing, tokens=TokenUsage(20, 4, 10))


def test_an_empty_choice_is_one_without_text_and_tool_calls() -> None:
    empty = [{"text": ""}, {"message": {"content": None}}]
    others = [{"text": "a"}, {"message": {"content": None, "tool_calls": [{}]}}]
    for choice, case in each([*empty, *others]):
        with case:
            assert record_of(MODEL, COHORT, reply(choice)).empty == (choice in empty)


def test_choices_that_were_cut_are_counted_and_tokens_priced() -> None:
    cut = {"text": "a", "finish_reason": "length"}
    record = record_of(MODEL, COHORT, reply(cut, {"text": "b"}, cut))
    assert (record.truncated, record.price, record.unit) == (2, 30.0, "ann")
    assert (record.ttft_ms, record.itl_ms, record.lasted_ms) == (5.0, 2.0, 25.0)
    one, none, two = map(Decimal, (1, 0, 2))
    rates = Price(per_1k_input_tokens=one, per_1k_cached_tokens=none, per_1k_output_tokens=two)
    priced = Model("m", "2", "echo_chat", price=rates)
    assert record_of(priced, COHORT, reply(cut)).price == pytest.approx(0.036)


def test_a_call_that_failed_has_no_times_to_compare() -> None:
    failed = Reply("a", None, ("transient", "died"), 0, {"ttft_ms": 5.0, "decode_ms": 1.0})
    record = record_of(MODEL, COHORT, failed)
    assert (record.failed, record.ttft_ms, record.lasted_ms) == (1, 0.0, 6.0)
