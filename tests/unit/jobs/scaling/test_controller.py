"""Decisions about the number of replicas."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scaling.controller import Decision, decide
from jobs.scaling.forecast import BIN_S, Arrivals
from jobs.scaling.history import History
from jobs.scaling.policy import Policy, parse
from jobs.scaling.schedules import Schedule
from jobs.scaling.signals import Signals
from tests.support.cases import each

DAY_S = 86_400.0
FOUR_RULES = (
    "queue above 500 for 30 s: +3",
    "queue above 100 for 60 s: +1",
    "used above 85 % for 5 min: +1",
    "used below 40 % for 15 min: −1",
)
BY_LOAD = Policy(max_replicas=10, boot_s=30, cooldown_s=60, min_stay_s=120, forecast=0)
BY_RULES = Policy(
    max_replicas=20, correct=False, cooldown_s=0, min_stay_s=0, forecast=0, rules=FOUR_RULES
)


class Pool:
    """A pool under a policy, whose replicas are ready boot_s after they are asked for; None:
    never."""

    def __init__(self, policy: Policy, replicas: int = 1, boot_s: float | None = 0.0) -> None:
        self.policy, self.boot_s = policy, boot_s
        self.at_s = 0.0
        self.ready, self._boots = replicas, list[float]()
        self.history = History(desired=replicas)
        self.decisions: list[Decision] = []

    def look(self, seconds: float = 1.0, /, **load: object) -> Decision:
        """Passes some time, and decides on this load."""
        self.at_s += seconds
        if self.boot_s is not None:
            self.ready += sum(until_s <= self.at_s for until_s in self._boots)
            self._boots = [until_s for until_s in self._boots if until_s > self.at_s]
        booting = len(self._boots)
        signals = Signals(self.at_s, self.ready, booting, **load)  # type: ignore[arg-type]
        decision = decide(signals, self.policy, self.history)
        self.history = decision.history
        more = decision.desired - self.ready - booting
        self._boots += [self.at_s + (self.boot_s or 0.0)] * max(0, more)
        self.ready += min(0, more)
        self.decisions.append(decision)
        return decision

    def run(self, seconds: float, load: Callable[[float], Mapping[str, object]]) -> list[int]:
        """Decides once a second; load: by the seconds since the beginning of this run."""
        return [self.look(**load(float(n))).desired for n in range(int(seconds))]

    def changes(self, seconds: float, load: Callable[[float], Mapping[str, object]]) -> list[str]:
        self.run(seconds, load)
        return [one.act for one in self.decisions if one.act in ("up", "down")]


def test_grows_at_once_to_what_the_calls_need_counting_replicas_that_boot() -> None:
    pool = Pool(BY_LOAD)
    assert pool.look(offered=4.0).desired == ceil(4.0 / 0.75)
    assert "4.00 replicas" in pool.decisions[-1].reason
    assert Pool(BY_LOAD, boot_s=30.0).run(29, lambda at: {"offered": 4.0}) == [6] * 29
    assert Pool(BY_LOAD, boot_s=30.0).changes(29, lambda at: {"offered": 4.0}) == ["up"]
    pool = Pool(BY_LOAD, boot_s=30.0)
    wanted = pool.run(300, lambda at: {"offered": 0.6 if at < 10 else 6.0, "refused": 0.0})
    assert max(wanted) == ceil(6.0 / 0.75)


def test_calls_that_are_refused_bring_a_replica_and_those_that_are_always_late_none() -> None:
    pool = Pool(BY_LOAD, replicas=4, boot_s=30.0)
    load = {"offered": 2.7, "refused": 0.1}
    wanted = pool.run(62, lambda at: load)
    assert (wanted[14], wanted[15], wanted[59], wanted[61]) == (4, 5, 5, 6)
    policy = replace(BY_LOAD, drain_s=120, boot_s=30)
    assert Pool(policy).look(offered=0.5, backlog_s=450.0).desired == ceil(0.5 + 450 / 150)
    assert Pool(BY_LOAD, replicas=2).look(offered=0.2, late=0.5).act == "stay"
    assert Pool(BY_LOAD, replicas=3).look(offered=2.0, backlog_s=100.0).act == "stay"
    assert Pool(BY_LOAD, 2).changes(3000, lambda at: {"offered": 1.2, "late": 1.0}) == ["up"]


def test_goes_down_one_at_a_time_after_the_cool_down_and_the_stay_and_for_no_short_lull() -> None:
    pool = Pool(BY_LOAD)
    pool.look(offered=4.0)
    pool.run(400, lambda at: {"offered": 0.1})
    downs = [one for one in pool.decisions if one.act == "down"]
    assert [one.desired for one in downs] == [5, 4, 3, 2, 1]
    times_s = [one.history.changed_s for one in downs]
    assert times_s[0] - 1.0 >= BY_LOAD.min_stay_s
    assert all(b - a >= BY_LOAD.cooldown_s for a, b in pairwise(times_s))
    lulls = Pool(BY_LOAD, replicas=6)
    assert lulls.changes(1000, lambda at: {"offered": 0.1 if at % 50 < 45 else 4.0}) == []


def test_without_metrics_nothing_is_decided_and_five_minutes_begin_the_cool_down_anew() -> None:
    for replicas in (1, 6):
        pool = Pool(BY_LOAD, replicas=replicas)
        assert pool.changes(600, lambda at: {"offered": 3.0, "missing": ("reports of apis",)}) == []
        assert "reports of apis" in pool.decisions[-1].reason
    pool = Pool(BY_LOAD, replicas=6)
    pool.run(59, lambda at: {"offered": 0.1})
    pool.run(300, lambda at: {"missing": ("Redis",)})
    assert pool.changes(BY_LOAD.cooldown_s, lambda at: {"offered": 0.1}) == []


def test_begins_with_the_replicas_that_there_are_and_holds_a_bound_that_is_narrowed() -> None:
    decision = decide(Signals(1.0, ready=3, booting=1), BY_LOAD, History())
    assert (decision.act, decision.history.desired) == ("stay", 4)
    signals = Signals(1.0, ready=0, missing=("the database",))
    decision = decide(signals, BY_LOAD, History())
    assert (decision.act, decision.history.desired) == ("stay", None)
    pool = Pool(BY_LOAD, replicas=8)
    pool.policy = replace(BY_LOAD, max_replicas=5)
    assert pool.look(offered=8.0).desired == 5
    decision = Pool(BY_LOAD).look(offered=20.0)
    assert decision.desired == 10
    assert "27 would be needed, max_replicas is 10" in decision.reason


def test_a_replica_is_overdue_once_if_it_never_gets_ready_and_not_if_it_restarts() -> None:
    pool = Pool(BY_LOAD, boot_s=None)
    load: Mapping[str, object] = {"offered": 2.0, "refused": 0.5, "late": 0.5}
    assert set(pool.run(1000, lambda at: load)) == {3}
    [told] = [one for one in pool.decisions if one.act == "overdue"]
    assert "only 1 of 3 replicas are ready" in told.reason
    pool = Pool(BY_LOAD, replicas=3)
    pool.run(1000, lambda at: {"offered": 1.9})
    pool.ready = 2
    assert pool.look(offered=1.9).act == "stay"


# The four declared rules.


def test_a_rule_holds_once_its_time_is_over() -> None:
    cases = [
        (2, {"queue": 501}, 30, 5),
        (2, {"queue": 101}, 60, 3),
        (2, {"offered": 1.71}, 300, 3),
        (3, {"offered": 1.1}, 900, 2),
    ]
    rules = zip(FOUR_RULES, cases, strict=True)
    for (_, (replicas, load, seconds, then)), case in each(rules):
        with case:
            wanted = Pool(BY_RULES, replicas=replicas).run(seconds + 1, lambda at, it=load: it)
            assert wanted == [replicas] * seconds + [then]


def test_a_rule_gives_itself_as_the_reason_and_holds_within_the_minimum_and_its_time() -> None:
    pool = Pool(BY_RULES, replicas=2)
    pool.run(31, lambda at: {"queue": 501})
    assert FOUR_RULES[0] in pool.decisions[-1].reason
    pool = Pool(BY_RULES, replicas=2, boot_s=100.0)
    wanted = pool.run(200, lambda at: {"queue": 501})
    assert (wanted[31], wanted[130], wanted[159], wanted[165]) == (5, 5, 5, 8)
    assert Pool(BY_RULES, 2).changes(200, lambda at: {"queue": 600 * (at % 30 != 29)}) == []
    assert Pool(BY_RULES, 1).changes(2000, lambda at: {"offered": 0.0}) == []


# Floors.


def test_a_schedule_is_prewarmed_and_ends() -> None:
    nine = Schedule("0 9 * * *", replicas=5, hours=1)
    policy = replace(BY_LOAD, schedules=(nine,), boot_s=60, min_stay_s=0)
    pool = Pool(policy)
    pool.at_s = 9 * 3600 - 62
    assert [pool.look().desired, pool.look().desired] == [1, 5]
    pool.at_s += 3590
    assert pool.look().desired == 5
    pool.run(400, lambda at: {})
    assert pool.decisions[-1].desired == 1


def test_a_forecast_is_a_floor_before_the_load_is_there() -> None:
    noon_s = 5 * DAY_S + 43_200
    work = {int(noon_s - day * DAY_S) // BIN_S: float(day) for day in (1, 2, 3, 4)}
    pool = Pool(replace(BY_LOAD, forecast=0.75, boot_s=60))
    pool.history = replace(pool.history, arrivals=Arrivals(work))
    pool.at_s = noon_s - 62.0
    assert [pool.look().desired, pool.look(2.0).desired] == [1, ceil(3.0 / 0.75)]
    assert "75% of earlier days" in pool.decisions[-1].reason


# Properties.

SHARES = st.floats(0.0, 1.0)
LOADS: st.SearchStrategy[dict[str, object]] = st.builds(
    dict,
    offered=st.floats(0.0, 50.0),
    backlog_s=st.floats(0.0, 1e5),
    queue=st.integers(0, 2000),
    refused=SHARES,
    late=SHARES,
    missing=st.sampled_from([(), (), (), ("Redis",)]),
)
POLICIES = st.builds(
    lambda least, more, **fields: Policy(
        min_replicas=least, max_replicas=least + more, rules=FOUR_RULES, forecast=0, **fields
    ),
    least=st.integers(0, 5),
    more=st.integers(0, 20),
    correct=st.booleans(),
    target_used=st.floats(0.1, 1.0),
    drain_s=st.floats(1.0, 600.0),
    boot_s=st.floats(0.0, 120.0),
    cooldown_s=st.floats(0.0, 120.0),
    min_stay_s=st.floats(0.0, 300.0),
)
Steps = Sequence[tuple[float, dict[str, object]]]
STEPS = st.lists(st.tuples(st.floats(0.5, 400.0), LOADS), min_size=1, max_size=40)


@given(POLICIES, STEPS, st.integers(0, 30), st.one_of(st.none(), st.floats(0.0, 100.0)))
def test_always_within_the_bounds(
    policy: Policy, steps: Steps, replicas: int, boot_s: float
) -> None:
    pool = Pool(policy, replicas, boot_s)
    for seconds, load in steps:
        decision = pool.look(seconds, **load)
        assert policy.min_replicas <= decision.desired <= policy.max_replicas
        assert decision.reason


@given(POLICIES, STEPS, st.integers(0, 30))
def test_changes_nothing_on_missing_metrics_and_goes_down_by_one_and_not_before_its_times(
    policy: Policy, steps: Steps, replicas: int
) -> None:
    pool = Pool(policy, policy.clamp(replicas))
    for seconds, load in steps:
        before = pool.history
        decision = pool.look(seconds, **load)
        if load["missing"]:
            assert (decision.act, decision.desired) == ("stay", before.desired)
        if decision.act == "down":
            assert decision.desired == (before.desired or 0) - 1
            assert pool.at_s - before.changed_s >= policy.cooldown_s
            assert pool.at_s - before.grown_s >= policy.min_stay_s


@given(POLICIES, st.floats(0.0, 30.0), st.lists(st.floats(-0.05, 0.05), min_size=100, max_size=100))
def test_does_not_flap_under_a_load_that_wavers(
    policy: Policy, offered: float, noise: Sequence[float]
) -> None:
    pool = Pool(replace(policy, correct=True, rules=()), policy.min_replicas)
    for seconds, share in enumerate(noise):
        pool.look(60.0, offered=offered * (1 + share))
        assert seconds >= 0
    acts = [one.act for one in pool.decisions if one.act in ("up", "down")]
    assert "down" not in acts  # it began with the fewest, and grew to what was needed
    assert len(acts) <= 8


@given(st.floats(0.1, 30.0), st.floats(0.2, 1.0))
def test_converges_to_a_constant(offered: float, target: float) -> None:
    policy = Policy(max_replicas=1000, target_used=target, boot_s=0, forecast=0)
    pool = Pool(policy, 160)
    for _ in range(330):
        pool.look(policy.min_stay_s, offered=offered)
    settled = pool.decisions[-1].desired
    assert ceil(offered / target - 1e-6) <= settled <= ceil(1.15 * offered / target) + 1


def test_its_state_survives_as_json_and_a_policy_names_every_fault() -> None:
    pool = Pool(replace(BY_LOAD, rules=FOUR_RULES), boot_s=30.0)
    pool.run(50, lambda at: {"offered": 3.0, "queue": 200})
    state = pool.history.state()
    assert History.from_state(state, 4, pool.at_s, Arrivals()) == pool.history
    assert History.from_state({}, 2, 7.0, Arrivals()) == History(2, changed_s=7.0, grown_s=7.0)
    with pytest.raises(ValueError, match=r"min_replicas.*target_used.*schedules\.0.*rules\.0"):
        parse({
            "min_replicas": 3, "max_replicas": 2, "target_used": 0, "rules": ["more!"],
            "schedules": [{"cron": "61 * * * *", "replicas": 1, "hours": 1}],
        })  # fmt: skip


def test_a_backlog_to_prepare_asks_for_replicas_that_stay_as_long_as_they_are_busy() -> None:
    signals = Signals(0.0, ready=1, busy=1.0, backlog_s=900.0)
    assert decide(signals, BY_LOAD, History(desired=1)).desired == ceil(900 / (30 + 120))
    history = History(desired=4)
    for at_s in range(0, 1000, 10):
        signals = Signals(float(at_s), ready=4, busy=0.9 if at_s < 500 else 0.1)
        decision = decide(signals, BY_LOAD, history)
        history = decision.history
        if at_s < 500:
            assert decision.desired == 4
    assert history.desired is not None
    assert history.desired < 4


APIS = replace(BY_LOAD, max_replicas=6, requests_s=100.0, lag_ms=100.0)


class Apis(Pool):
    """Apis that lag once each gets more than `carries` requests a second."""

    def __init__(self, carries: float, policy: Policy = APIS) -> None:
        super().__init__(policy, boot_s=3.0)
        self.carries = carries

    def come(self, seconds: float, requests_s: float) -> list[int]:
        """Lets so many requests come for a while; returns the numbers of apis, without repeats."""
        seen = list[int]()
        for _ in range(int(seconds)):
            lag_s = 0.5 if requests_s / self.ready > self.carries else 0.001
            offered = requests_s / self.policy.requests_s
            now = self.look(lag_s=lag_s, requests_s=requests_s, offered=offered).desired
            seen += [now] if seen[-1:] != [now] else []
        return seen


def test_apis_follow_the_requests_and_one_more_comes_while_they_lag() -> None:
    assert Apis(carries=1000).come(300, 220) == [3]
    apis = Apis(carries=9)
    assert apis.come(9, 22) == [1]
    assert apis.come(60, 22) == [1, 2, 3]
    assert [one.reason for one in apis.decisions if one.act == "up"] == [
        "rule 'lag above 100 ms for 10 s: +1'"
    ] * 2
    assert apis.come(300, 22) == [3]
    assert Apis(carries=9, policy=replace(APIS, correct=False)).come(300, 22) == [1]


def test_a_lag_that_passes_at_once_brings_no_api() -> None:
    apis = Pool(APIS)
    blips = {"requests_s": 10.0, "offered": 0.1}
    assert apis.changes(600, lambda at: {**blips, "lag_s": 2.0 if at % 10 < 9 else 0.0}) == []


def test_apis_that_lagged_are_not_asked_to_carry_that_again_until_an_hour_later() -> None:
    apis = Apis(carries=14)
    assert apis.come(30, 15) == [1, 2]
    assert apis.come(1800, 15) == [2]  # a single one would lag
    assert apis.come(300, 12) == [2, 1]
    assert apis.come(30, 15) == [1, 2]
    assert apis.come(3500, 14) == [2]
    assert apis.come(300, 14) == [2, 1]
