"""In which order a call is degraded before it is refused."""

from dataclasses import replace

from api.gateway.fallbacks import fallback_plans
from api.gateway.routing.target import Target
from jobs.models.model import Degrade, Limits, Model
from jobs.models.registry import Registry

LONG = "one two three four five six seven eight nine ten"
SMALL = Model("m", "1", "minilm")
LARGE = Model("m", "2", "minilm", degrade=Degrade(truncate=8, fallback="m@1"))


def found(value: str, model: Model, *others: Model, **params: object) -> list[tuple[object, ...]]:
    models = Registry([*others, model])
    return [
        (way.model.key, dict(way.params), way.size, dict(way.degraded))
        for way in fallback_plans(models, Target(model), value, params)
    ]


def test_a_call_goes_as_asked_then_shorter_then_to_the_fallback() -> None:
    assert found(LONG, LARGE, SMALL) == [
        ("m@2", {}, 12, {}),
        ("m@2", {"truncate": 8}, 8, {"truncated_to": 8}),
        ("m@1", {}, 12, {"fallback_from": "m@2"}),
    ]


def test_what_is_short_enough_is_not_cut_and_without_an_entry_there_is_one_way() -> None:
    assert [way[0] for way in found("short", LARGE, SMALL)] == ["m@2", "m@1"]
    assert [way[0] for way in found(LONG, LARGE, SMALL, truncate=5)] == ["m@2", "m@1"]
    assert [way[0] for way in found(LONG, SMALL)] == ["m@1"]


def test_a_fallback_degrades_as_its_own_entry_says() -> None:
    least = Model("least", "1", "minilm")
    small = replace(SMALL, degrade=Degrade(truncate=4, fallback="least@1"))
    assert [(way[0], way[3]) for way in found(LONG, LARGE, small, least)[2:]] == [
        ("m@1", {"fallback_from": "m@2"}),
        ("m@1", {"fallback_from": "m@2", "truncated_to": 4}),
        ("least@1", {"fallback_from": "m@2"}),
    ]


def test_a_fallback_gets_what_it_takes_or_is_passed_over() -> None:
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
