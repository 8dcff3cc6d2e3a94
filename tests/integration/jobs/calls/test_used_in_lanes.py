"""What calls used: each that was answered, once. One suite, over Redis and over memory."""

from jobs.calls.messages import SHADOW, Call, Reply
from jobs.models.inputs.generation import TokenUsage
from tests.integration.jobs.calls.made import Lanes

TOKENS = TokenUsage(10, 4, 3)


def put(lanes: Lanes, id: str, tenant: str = "acme", **fields: object) -> Call:
    call = Call(id, "{}/64", tenant, None, 3, "api-1", **fields)  # type: ignore[arg-type]
    assert lanes.refusal(call) is None
    return call


def test_answered_calls_are_counted_by_tenant_and_class_failed_ones_too(lanes: Lanes) -> None:
    for id, tenant, job_class in (
        ("a", "acme", "standard"), ("b", "one with spaces", "standard"), ("c", "acme", "bulk"),
        ("fails", "acme", "standard"), ("no-tokens", "acme", "standard"),
    ):  # fmt: skip
        put(lanes, id, tenant, job_class=job_class)
    for call in lanes.take():
        tokens = None if call.id == "no-tokens" else TOKENS
        lanes.answer_as(call, failed=call.id == "fails", device_us=10, tokens=tokens)
    assert lanes.usage() == {
        ("acme", "standard"): (2, 1, 6, 30),
        ("acme", "bulk"): (1, 0, 3, 10),
        ("one with spaces", "standard"): (1, 0, 3, 10),
    }
    assert lanes.tokens() == {"acme": (30, 12, 9), "one with spaces": (10, 4, 3)}


def test_adapters_are_counted_by_themselves_and_forgotten(lanes: Lanes) -> None:
    put(lanes, "a")
    put(lanes, "b", adapter="legal")
    for call in lanes.take():
        lanes.answer_as(call, device_us=10)
    used = lanes.lanes.usage(unfinished=True)
    assert {(one.adapter, one.job_class, one.succeeded) for one in used} == {
        ("", "standard", 1),
        ("legal", "standard", 1),
    }
    lanes.lanes.forget_usage(used)
    assert lanes.usage() == {}


def test_a_copy_of_a_call_is_forgotten_and_never_counted(lanes: Lanes) -> None:
    put(lanes, "a", cohort=SHADOW)
    [copy] = lanes.take()
    assert not copy.billed
    lanes.answer_as(copy, device_us=10, tokens=TokenUsage(3, 1, 5))
    assert (lanes.usage(), lanes.waiting()) == ({}, {})
    assert [id for id, *_ in lanes.answers()] == ["a"]
    lanes.answer_as(copy, device_us=10, tokens=TokenUsage(3, 1, 5))  # known no more
    assert lanes.usage() == lanes.tokens() == {}


def test_a_redelivered_call_counts_once_for_who_answers_first(lanes: Lanes) -> None:
    put(lanes, "a")
    [call] = lanes.take(worker="worker-2", lease_ms=0.0)
    lanes.passed(lanes.look().now_ms)
    assert lanes.lanes.recover() == 1
    [again] = lanes.take(lane="alone:{}/64")
    for _ in range(2):
        lanes.answer_as(again, device_us=30, tokens=TOKENS)
    lanes.answer_as(call, device_us=10, tokens=TokenUsage(10, 0, 2))
    assert lanes.usage() == {("acme", "standard"): (1, 0, 3, 30)}
    assert lanes.tokens() == {"acme": (10, 4, 3)}


def test_the_calls_of_one_launch_are_counted_together_and_once(lanes: Lanes) -> None:
    for n in range(5):
        put(lanes, f"call{n}")
    replies = [
        Reply(call.id, b"1", None, 3, {}, call.tenant, call.job_class, 0, TOKENS)
        for call in lanes.take()
    ]
    for _ in range(2):
        lanes.lanes.reply("api-1", replies)
    assert lanes.tokens() == {"acme": (50, 20, 15)}
    assert lanes.usage() == {("acme", "standard"): (5, 0, 15, 0)}


def test_a_call_that_was_taken_back_or_lost_with_two_workers_costs_nothing(lanes: Lanes) -> None:
    call = put(lanes, "a")
    [taken] = lanes.take()
    lanes.lanes.drop(call)
    lanes.answer_as(taken, device_us=10)
    put(lanes, "b")
    for lane in ("{}/64", "alone:{}/64"):
        lanes.take(lane=lane, worker="worker-2", lease_ms=0.0)
        lanes.passed(lanes.look().now_ms)
        assert lanes.lanes.recover() == 1
    assert lanes.usage() == {}


def test_the_minute_that_runs_is_not_over_and_what_is_forgotten_is_gone(lanes: Lanes) -> None:
    put(lanes, "a")
    [call] = lanes.take()
    minute_ms = 60_000 * (lanes.look().now_ms // 60_000)  # or later, when it is answered
    lanes.answer_as(call, tokens=TOKENS)
    assert lanes.lanes.usage() == [] or lanes.look().now_ms > minute_ms + 60_000
    lanes.lanes.forget_usage(lanes.lanes.usage(unfinished=True))
    assert (lanes.usage(), lanes.tokens()) == ({}, {})


def test_a_cancelled_call_is_billed_once_for_what_it_generated(lanes: Lanes) -> None:
    call = put(lanes, "a")
    [taken] = lanes.take()
    lanes.lanes.drop(call)
    for _ in range(2):
        lanes.answer_as(taken, failed=True, device_us=10, tokens=TOKENS)
    assert lanes.tokens() == {"acme": (10, 4, 3)}
    assert lanes.usage() == {("acme", "standard"): (0, 1, 0, 10)}
