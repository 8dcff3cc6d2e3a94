"""Buckets of users and their shares; precedence of rollouts, routes and aliases."""

from collections import Counter

from jobs.models.routing.bucket import BUCKETS, bucket_of, random_bucket
from jobs.models.routing.rollout import ActiveRollout
from jobs.models.routing.route import Route, Share, bucket_for, caller_for, problems_of
from jobs.models.routing.table import Choice, RoutingTable
from tests.support.cases import each

USERS = [bucket_of("salt", "acme", f"user-{n}") for n in range(50_000)]


def test_a_share_of_users_is_within_half_a_point_and_those_of_buckets_are_exact() -> None:
    for percent in (0.5, 1, 5, 25, 50):
        route = Route("m", [Share("1", 100 - percent), Share("2", percent)])
        share = sum(route.version_at(bucket) == "2" for bucket in USERS) / len(USERS)
        assert abs(100 * share - percent) < 0.5
    route = Route("m", [Share("1", 33.34), Share("2", 33.33), Share("3", 33.33)])
    sizes = Counter(route.version_at(bucket) for bucket in range(BUCKETS))
    assert sizes == {"1": 3334, "2": 3333, "3": 3333}


def test_a_ramp_and_a_raised_share_take_nobody_back() -> None:
    before: set[int] = set()
    for percent in (0, 1, 5, 10, 25, 50, 99.99, 100):
        at = ActiveRollout("r", "m", "1", "2", percent).cohort_at
        canary = {n for n, bucket in enumerate(USERS[:20_000]) if at(bucket) == "canary"}
        assert before <= canary
        before = canary
    assert len(before) == 20_000
    before = set()
    for last in (1, 5, 20, 60, 90):
        route = Route("m", [Share("1", 90 - last), Share("2", 10), Share("3", last)])
        chosen = {bucket for bucket in range(BUCKETS) if route.version_at(bucket) == "3"}
        assert before < chosen
        before = chosen


def test_the_control_has_the_canarys_size_as_far_as_there_is_room() -> None:
    for percent, case in each([0, 0.01, 1, 33.33, 50, 75, 100]):
        with case:
            rollout = ActiveRollout("r", "m", "1", "2", percent)
            sizes = Counter(rollout.cohort_at(bucket) for bucket in range(BUCKETS))
            assert sizes["canary"] == round(percent * 100)
            assert sizes["control"] == min(sizes["canary"], BUCKETS - sizes["canary"])
            assert sizes["stable"] == BUCKETS - sizes["canary"] - sizes["control"]


def test_buckets_of_two_salts_are_independent_and_a_sticky_user_or_key_keeps_its_own() -> None:
    tenth = BUCKETS // 10
    in_both = (all(bucket_of(s, "t", f"{n}") < tenth for s in "ab") for n in range(50_000))
    both = sum(in_both)
    assert 0.007 < both / 50_000 < 0.013
    assert bucket_of("s", "ab", "c") != bucket_of("s", "a", "bc")
    assert len({bucket_for("user", "s", "t", "ann", "") for _ in range(50)}) == 1
    assert len({bucket_for("user", "s", "t", "", "") for _ in range(50)}) > 10
    assert len({bucket_for("tenant", "s", "t", f"u{n}", f"k{n}") for n in range(50)}) == 1
    assert len({bucket_for("", "s", "t", "ann", "") for _ in range(50)}) > 10
    assert len({bucket_for("", "s", "t", f"u{n}", "key") for n in range(50)}) == 1
    assert bucket_for("", "s", "t", "", "key") != bucket_of("s", "t", "key")
    assert all(0 <= random_bucket() < BUCKETS for _ in range(1000))


def test_callers_are_told_apart_by_what_does_not_tell_who_they_are() -> None:
    callers = {caller_for("user", "salt", "acme", f"user-{n}") for n in range(50_000)}
    assert len(callers) == 50_000
    assert caller_for("user", "salt", "acme", "user-1") in callers
    assert caller_for("user", "other", "acme", "user-1") not in callers
    assert len({caller_for("tenant", "salt", "acme", f"user-{n}") for n in range(9)}) == 1
    assert not caller_for("user", "salt", "acme", "")
    assert not caller_for("", "salt", "acme", "ann")


OF_ALL = Route("m", [Share("1", 100)])
OF_ACME = Route("m", [Share("2", 100)], tenant="acme")
STABLE = {("m", "stable"): "3"}
ALL_CANARY = {"m": ActiveRollout("r", "m", "3", "4", 100)}


def routes(*given: Route) -> dict[tuple[str, str], Route]:
    return {(route.name, route.tenant): route for route in given}


def test_a_rollout_goes_before_routes_before_the_alias_before_the_version_listed_first() -> None:
    everything = RoutingTable(STABLE, ALL_CANARY, routes(OF_ALL, OF_ACME))
    assert everything.choose("m", "acme") == Choice("4", "canary", "r", fallback="3")
    without_rollout = RoutingTable(STABLE, {}, routes(OF_ALL, OF_ACME))
    assert without_rollout.choose("m", "acme") == Choice("2")
    assert without_rollout.choose("m", "other") == Choice("1")
    assert RoutingTable(STABLE).choose("m", "acme") == Choice("3", any_ready=True)
    assert RoutingTable({("m", "best"): "3"}).choose("m", "acme") is None
    assert without_rollout.choose("other", "acme") is None
    assert (bool(RoutingTable()), bool(without_rollout)) == (False, True)
    route = Route("m", [Share("1", 0), Share("2", 100)])
    assert RoutingTable(routes=routes(route)).choose("m", "t") == Choice("2", fallback="1")
    always = RoutingTable(routes=routes(Route("m", [Share("1", 100)], shadow=Share("2", 100))))
    assert always.choose("m", "t") == Choice("1", shadow="2")
    itself = RoutingTable(routes=routes(Route("m", [Share("2", 100)], shadow=Share("2", 100))))
    assert itself.choose("m", "t") == Choice("2")


def test_the_cohort_names_its_rollout_and_a_call_that_another_version_answers_is_missed() -> None:
    some = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 30)})
    labels = {some.choose("m", "t").label for _ in range(100)}  # type: ignore[union-attr]
    assert labels == {"canary#r", "control#r", "stable#r"}
    small = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 0)})
    assert small.choose("m", "t") == Choice("1", "stable", "r")
    every = RoutingTable(rollouts=ALL_CANARY).choose("m", "acme")
    assert (every.label, every.fallback_label) == ("canary#r", "missed#r")
    assert Choice("1", "control", "r").fallback_label == ""


def test_the_cohort_of_a_sticky_caller_tells_callers_apart_beside_the_stable_rest() -> None:
    some = RoutingTable(rollouts={"m": ActiveRollout("r", "m", "1", "2", 30, "user", "salt")})
    chosen = [some.choose("m", "t", f"user-{n}") for n in range(100)] * 2
    labels = {one.label for one in chosen if one}
    assert {label.rpartition("#")[0] for label in labels if label} == {"canary#r", "control#r"}
    assert "" in labels
    assert 40 < len(labels) < 80
    assert not any("user" in label for label in labels)


def test_a_faulty_route_is_described_and_a_sound_one_has_no_problems() -> None:
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
    sound = Route("m", [Share("1", 66.67), Share("2", 33.33)], shadow=Share("2", 5))
    assert list(problems_of(sound, {"1", "2"})) == []
