"""Versions that a call may go to: by name, by route, by what is ready; answers of two of them."""

import pickle
from collections.abc import Sequence
from dataclasses import replace

import pytest

from api.gateway.routing.comparison import compare
from api.gateway.routing.target import Asker, ReadyVersions, Target, targets
from jobs.errors import UnknownModel
from jobs.models.adapters import Adapter
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share
from jobs.models.routing.table import RoutingTable

OLD, NEW, NEXT = (Model("m", version, "echo") for version in ("1", "2", "3"))
OTHER = Model("other", "1", "echo")
MODELS = Registry([OLD, NEW, NEXT, OTHER])
ASKER = Asker("acme", "ann")
CANARY = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 100)})


def routed(*shares: tuple[str, float], shadow: Share | None = None) -> RoutingTable:
    route = Route("m", [Share(*share) for share in shares], shadow=shadow)
    return RoutingTable(routes={("m", "*"): route})


def target(
    routing: RoutingTable, *ready: Model, name: str = "m", models: Registry = MODELS
) -> Target:
    keys = frozenset(model.key for model in ready)
    return ReadyVersions(routing, ASKER, keys).target(models, name)


def test_without_routes_a_bare_name_is_the_newest_ready_version_and_a_full_one_beats_all() -> None:
    assert target(RoutingTable(), OLD, NEW) == Target(NEW)
    assert target(RoutingTable()) == Target(NEXT)
    assert targets(MODELS, RoutingTable(), "other", ASKER) == [Target(OTHER)]
    for routing in (CANARY, routed(("3", 100))):
        assert target(routing, OLD, name="m@2") == Target(NEW)
    with pytest.raises(UnknownModel):
        targets(MODELS, CANARY, "nothing", ASKER)


def test_a_canary_that_cannot_answer_falls_back_to_the_stable_version() -> None:
    assert target(CANARY, OLD, NEW) == Target(NEW, "canary#r")
    assert target(CANARY, OLD, NEXT) == Target(OLD, "missed#r", missed=NEW)
    assert target(CANARY) == Target(OLD, "missed#r", missed=NEW)
    without = Registry([OLD, OTHER])
    assert target(CANARY, OLD, models=without) == Target(OLD, "missed#r")


def test_a_split_falls_back_to_the_version_listed_first_and_the_stable_alias_to_any() -> None:
    assert target(routed(("1", 0), ("2", 100)), OLD, NEXT) == Target(OLD, missed=NEW)
    assert target(routed(("1", 100), ("2", 0)), NEW, NEXT) == Target(OLD)
    assert target(routed(("9", 100)), NEW) == Target(NEW), "it is not served here"
    stable = RoutingTable({("m", "stable"): "1"})
    assert target(stable, OLD, NEW) == Target(OLD)
    assert target(stable, NEW) == Target(NEW, missed=OLD)
    assert target(stable) == Target(OLD)


def again(
    taken: str, routing: RoutingTable, models: Registry = MODELS, name: str = "m"
) -> Sequence[Target]:
    """Returns where a call goes whose key a version had taken before."""
    return targets(models, routing, name, replace(ASKER, key="k", taken=taken))


def test_a_call_under_a_key_stays_with_the_version_and_cohort_that_took_it() -> None:
    stable = RoutingTable({("m", "stable"): "3", ("m", "best"): "3"})
    models = Registry([OLD, NEW, NEXT, OTHER], stable)
    for routing in (stable, routed(("2", 0), ("3", 100)), CANARY, RoutingTable()):
        assert again("m@1", routing) == [Target(OLD)]
    assert again("m@1", stable, models, "m@best") == [Target(OLD)]
    assert again("m@1", stable, models, "m@3") == [Target(NEXT)], "what is named beats all"
    assert again("other@1", stable)[0] == Target(NEXT), "the key had another model"
    [first, fallback] = targets(MODELS, CANARY, "m", ASKER)
    assert (first.taken, fallback.taken) == ("m@2\ncanary", "m@1")
    assert again(first.taken, CANARY) == [Target(NEW)]  # it counts once
    assert again(fallback.taken, CANARY) == [Target(OLD)]
    back = RoutingTable({("m", "stable"): "1"})
    promoted = RoutingTable({("m", "stable"): "2"})
    assert again("m@2\ncanary", back)[0] == Target(OLD)
    assert again("m@2\ncanary", promoted) == [Target(NEW)]
    assert again("m@2", back, Registry([OLD, OTHER]))[0] == Target(OLD)


def test_a_shadow_goes_with_the_target_and_adapters_by_the_route_of_their_model() -> None:
    assert target(routed(("1", 100), shadow=Share("3", 100)), OLD) == Target(OLD, shadow=NEXT)
    assert target(routed(("1", 100), shadow=Share("9", 100)), OLD) == Target(OLD)
    adapters = (Adapter("legal"),)
    models = Registry([replace(one, adapters=adapters) for one in (OLD, NEW)])
    for version, name in (("1", "m:legal"), ("2", "legal")):
        found = target(routed((version, 100)), OLD, NEW, name=name, models=models)
        assert found.model.key == f"m:legal@{version}"


def test_the_user_of_a_header_goes_before_that_of_a_body_and_to_a_child_process() -> None:
    assert Asker("t", "ann").named("bob").user == "ann"
    assert Asker("t").named("bob").user == "bob"
    assert Asker("t").named(7).user == Asker("t").named(None).user == ""
    ready = ReadyVersions(CANARY, ASKER, frozenset({"m@2"}))
    assert pickle.loads(pickle.dumps(ready)).target(MODELS, "m") == Target(NEW, "canary#r")


@pytest.mark.parametrize(
    ("one", "other", "outcome"),
    [
        (b'"a"', b'"a"', "equal"),
        (b"[1, 2.0]", b"[1,2]", "equal"),
        (b'{"a": 1, "b": 2}', b'{"b": 2, "a": 1}', "equal"),
        (b"[0.5, 0.25]", b"[0.5001, 0.2499]", "close"),
        (b'{"a": [{"score": 0.9}]}', b'{"a": [{"score": 0.90001}]}', "close"),
        (b"[0.0]", b"[0.0005]", "close"),
        (b"[0.5]", b"[0.6]", "different"),
        (b"[0.5]", b"[0.5, 0.5]", "different"),
        (b'"a"', b'"b"', "different"),
        (b"true", b"1", "different"),
        (b'{"a": 1}', b'{"b": 1}', "different"),
        (b"[1]", b'{"a": 1}', "different"),
        (b"null", b"0", "different"),
    ],
)
def test_numbers_alone_may_differ_a_little(one: bytes, other: bytes, outcome: str) -> None:
    assert compare(one, other) == compare(other, one) == outcome
