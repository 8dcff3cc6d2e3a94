"""In which order a call is degraded before it is refused, and what a refused call is told."""

import math
from dataclasses import replace

from api.gateway.fallbacks import fallback_plans
from api.gateway.rejections import rejection
from api.gateway.routing.target import Target
from api.http.errors import problem_response
from api.http.retry_after import retry_delay_s
from jobs.calls.lanes import Rejection, Terms
from jobs.errors import MillraceError, NoWorker, Overloaded, TooLate
from jobs.models.model import Degrade, Limits, Model
from jobs.models.registry import Registry
from tests.support.cases import each

LONG = "one two three four five six seven eight nine ten"
SMALL = Model("m", "1", "minilm")
LARGE = Model("m", "2", "minilm", degrade=Degrade(truncate=8, fallback="m@1"))


def found(value: str, model: Model, *others: Model, **params: object) -> list[tuple[object, ...]]:
    models = Registry([*others, model])
    return [
        (way.model.key, dict(way.params), way.size, dict(way.degraded))
        for way in fallback_plans(models, Target(model), value, params)
    ]


def test_a_call_goes_as_asked_then_shorter_if_it_is_long_then_to_the_fallback() -> None:
    assert found(LONG, LARGE, SMALL) == [
        ("m@2", {}, 12, {}),
        ("m@2", {"truncate": 8}, 8, {"truncated_to": 8}),
        ("m@1", {}, 12, {"fallback_from": "m@2"}),
    ]
    assert [way[0] for way in found("short", LARGE, SMALL)] == ["m@2", "m@1"]
    assert [way[0] for way in found(LONG, LARGE, SMALL, truncate=5)] == ["m@2", "m@1"]
    assert [way[0] for way in found(LONG, SMALL)] == ["m@1"]


def test_a_fallback_gets_what_it_takes_and_degrades_as_its_own_entry_says() -> None:
    least = Model("least", "1", "minilm")
    small = replace(SMALL, degrade=Degrade(truncate=4, fallback="least@1"))
    assert [(way[0], way[3]) for way in found(LONG, LARGE, small, least)[2:]] == [
        ("m@1", {"fallback_from": "m@2"}),
        ("m@1", {"fallback_from": "m@2", "truncated_to": 4}),
        ("least@1", {"fallback_from": "m@2"}),
    ]
    shout = Model("shout", "1", "function")
    model = replace(LARGE, degrade=Degrade(fallback="shout@1"))
    [_, way] = found("short", model, shout, normalize=False)
    assert way == ("shout@1", {}, len("short"), {"fallback_from": "m@2"})
    narrow = replace(SMALL, limits=Limits(max_item_bytes=10))
    assert [way[0] for way in found(LONG, LARGE, narrow)] == ["m@2", "m@2"]


def test_output_is_estimated_by_what_a_call_allows() -> None:
    model = Model("chat", "1", "echo_chat")

    def tokens(**more: object) -> int:
        value = {"messages": [{"role": "user", "content": "x"}], **more}
        [plan] = fallback_plans(Registry([model]), Target(model), value, {})
        return plan.output_tokens

    assert (tokens(max_tokens=10), tokens(max_completion_tokens=10, n=3)) == (10, 30)
    assert tokens() > 0
    [plan] = fallback_plans(Registry([SMALL]), Target(SMALL), "x", {})
    assert plan.output_tokens == 0


MODEL = Model("m", "1", "echo")
TERMS = Terms(allowed_ms=190.0, one_ms=100.0)


def error(why: str, wait_ms: float = 0.0, load_ms: float = 0.0) -> MillraceError:
    return rejection(Rejection(why, wait_ms), MODEL, TERMS, load_ms)  # type: ignore[arg-type]


def test_each_refusal_has_its_status() -> None:
    for why, kind, status, code in (
        ("late", TooLate, 429, "predicted_wait"),
        ("overloaded", Overloaded, 503, "overloaded"),
        ("no_worker", NoWorker, 503, "no_worker"),
    ):
        found = error(why)
        assert type(found) is kind
        assert (found.status, found.code, found.retryable) == (status, code, True)


def test_retry_after_is_the_predicted_drain_and_never_the_same() -> None:
    drains: list[tuple[str, float, float, float]] = [
        ("late", 590.0, 0.0, 0.5),  # 590 + 100 - 190: when a launch of its own would be in time
        ("overloaded", 800.0, 0.0, 0.8),
        ("no_worker", 0.0, 12_000.0, 12.0),
        ("no_worker", 0.0, 0.0, 1.5),
        ("late", 90.5, 0.0, 0.02),  # half a millisecond too late: still no reason to hammer
        ("late", 1e9, 0.0, 80.0),
    ]
    for (why, wait_ms, load_ms, drain_s), case in each(drains):
        with case:
            found = [error(why, wait_ms, load_ms).retry_after_s or 0.0 for _ in range(200)]
            assert drain_s <= min(found) <= max(found) <= min(120, 1.5 * drain_s)
            assert max(found) - min(found) > drain_s / 10


def test_retry_after_is_sent_in_seconds_and_in_milliseconds() -> None:
    headers = problem_response(error("late", 2_590.0), "req_1").headers
    soon_ms = int(headers["retry-after-ms"])
    assert 2_500 <= soon_ms <= 3_750
    assert int(headers["retry-after"]) == math.ceil(soon_ms / 1000)
    assert len({retry_delay_s() for _ in range(20)}) > 1  # of a call that was lost
