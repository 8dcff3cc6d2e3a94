"""Precedence of rollouts, routes and aliases; faults of routes."""

from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share, problems_of
from jobs.models.routing.table import Choice, RoutingTable
from tests.support.cases import each

OF_ALL = Route("m", [Share("1", 100)])
OF_ACME = Route("m", [Share("2", 100)], tenant="acme")
STABLE = {("m", "stable"): "3"}
ALL_CANARY = {"m": ActiveRollout("r", "m", "3", "4", 100)}


def routes(*given: Route) -> dict[tuple[str, str], Route]:
    return {(route.name, route.tenant): route for route in given}


def test_a_rollout_goes_before_routes_and_routes_before_the_alias() -> None:
    everything = RoutingTable(STABLE, ALL_CANARY, routes(OF_ALL, OF_ACME))
    assert everything.choose("m", "acme") == Choice("4", "canary", "r", fallback="3")
    without_rollout = RoutingTable(STABLE, {}, routes(OF_ALL, OF_ACME))
    assert without_rollout.choose("m", "acme") == Choice("2")
    assert without_rollout.choose("m", "other") == Choice("1")
    assert RoutingTable(STABLE).choose("m", "acme") == Choice("3", any_ready=True)
    assert RoutingTable({("m", "best"): "3"}).choose("m", "acme") is None
    assert without_rollout.choose("other", "acme") is None


def test_an_empty_table_is_false() -> None:
    assert not RoutingTable()
    assert RoutingTable(routes=routes(OF_ALL))


def test_the_cohort_names_its_rollout() -> None:
    some = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 30)})
    labels = {some.choose("m", "t").label for _ in range(100)}  # type: ignore[union-attr]
    assert labels == {"canary#r", "control#r", "stable#r"}
    small = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 0)})
    assert small.choose("m", "t") == Choice("1", "stable", "r")


def test_the_cohort_of_a_sticky_caller_tells_callers_apart_beside_the_stable_rest() -> None:
    some = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 30, "user", "salt")})
    chosen = [some.choose("m", "t", f"user-{n}") for n in range(100)] * 2
    labels = {one.label for one in chosen if one}
    assert {label.rpartition("#")[0] for label in labels if label} == {"canary#r", "control#r"}
    assert "" in labels
    assert 40 < len(labels) < 80
    assert not any("user" in label for label in labels)


def test_a_call_of_the_canary_that_another_version_answers_is_missed() -> None:
    every = RoutingTable(rollouts=ALL_CANARY).choose("m", "acme")
    assert every
    assert (every.label, every.fallback_label) == ("canary#r", "missed#r")
    assert Choice("1", "control", "r").fallback_label == ""


def test_calls_of_a_version_without_a_worker_fall_back_to_the_one_listed_first() -> None:
    route = Route("m", [Share("1", 0), Share("2", 100)])
    assert RoutingTable(routes=routes(route)).choose("m", "t") == Choice("2", fallback="1")


def test_a_share_of_calls_is_copied_but_not_to_the_version_that_answers() -> None:
    always = RoutingTable(routes=routes(Route("m", [Share("1", 100)], shadow=Share("2", 100))))
    assert always.choose("m", "t") == Choice("1", shadow="2")
    itself = RoutingTable(routes=routes(Route("m", [Share("2", 100)], shadow=Share("2", 100))))
    assert itself.choose("m", "t") == Choice("2")


def test_a_faulty_route_is_described() -> None:
    cases = [
        (Route("m", []), "at least one version"),
        (Route("m", [Share("1", 60), Share("2", 50)]), "make 110: they must make 100"),
        (Route("m", [Share("1", 50), Share("1", 50)]), "named 2 times"),
        (Route("m", [Share("1", 99.999), Share("2", 0.001)]), "at most two decimals"),
        (Route("m", [Share("1", 101), Share("2", -1)]), "from 0 to 100"),
        (Route("m", [Share("1", 50), Share("9", 50)]), "no active version '9'; there are: 1, 2"),
        (Route("m", [Share("1", 100)], shadow=Share("9", 5)), "no active version '9'"),
        (Route("m", [Share("1", 100)], shadow=Share("1", 5)), "answers all calls itself"),
        (Route("m", [Share("1", 100)], shadow=Share("2", 120)), "from 0 to 100"),
    ]
    for (route, words), case in each(cases):
        with case:
            assert words in " ".join(problems_of(route, {"1", "2"}))


def test_a_sound_route_has_no_problems() -> None:
    route = Route("m", [Share("1", 66.67), Share("2", 33.33)], shadow=Share("2", 5))
    assert list(problems_of(route, {"1", "2"})) == []
