"""The autoscaler of a keeper: what it measures, decides, and writes down."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
from sqlalchemy import Engine

from jobs import clock
from jobs.calls.profile import Profile, Times
from jobs.calls.redis import RedisLanes
from jobs.errors import Conflict, Invalid, NotFound
from jobs.models.watcher import ModelsFile
from jobs.scaling.forecast import BIN_S
from jobs.scaling.policy import Policy
from jobs.settings import Settings
from jobs.states import API_POOL
from jobs.store import db
from jobs.store.queue import workers
from jobs.store.scaling import arrivals
from jobs.store.scaling import policies as store
from jobs.store.scaling.leader import Leadership
from jobs.store.scaling.policies import PolicyRow
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import audit
from jobs.telemetry.metrics.metrics import REGISTRY
from jobs.telemetry.metrics.pools import GAUGES
from jobs.telemetry.reports.reports import KEY, Report
from jobs.telemetry.reports.window import Recent, WindowDelta
from jobs.usecases import scaling
from tests.support.cases import each
from tests.support.stores.transactions import execute
from tests.support.wait import eventually
from workers.keeper.scaling.controller import PoolController

POLICY = Policy(max_replicas=6, boot_s=30, cooldown_s=0, min_stay_s=0, actuator="command")
PROFILE = Profile(buckets={0: Times(full_rows=10, full_ms=100.0, one_ms=10.0)})  # 100 entries/s


class Stage:
    """A pool with workers, and keepers that look at it when they are told to."""

    def __init__(self, database: Engine, settings: Settings, client: "redis.Redis") -> None:
        self.database, self.redis = database, client
        self.settings = settings
        self._ends: list[Callable[[], None]] = []
        self.keeper = self.another()

    def another(self) -> PoolController:
        role = db.connect(self.settings.database_url, pool_size=2, role=db.WORKER)
        keeper = PoolController(self.settings, self.redis, ModelsFile(None), role)
        self._ends += [keeper.close, role.dispose]
        return keeper

    def close(self) -> None:
        for end in self._ends:
            end()

    def workers(self, count: int, pool: str = "default") -> None:
        for _ in range(count):
            with self.database.begin() as tx:
                id = workers.register(tx, "w", pool, "cpu", ["echo@1"])
                workers.heartbeat(tx, id, "ready")
            window, about = WindowDelta(60, {}, {}), {"pool": pool}
            self._report(Report(str(id), "worker", self.now_s, window, about))

    def calls(self, per_s: float, outcome: str = "succeeded") -> None:
        """An api reports so many calls of echo a second, of which a worker does 100 a second."""
        RedisLanes(self.redis, "echo@1").announce("w", 60, profile=PROFILE.pack())
        labels = (("class", "standard"), ("model", "echo@1"), ("outcome", outcome))
        recent = Recent(10.0, {("millrace_calls_total", labels): 10 * per_s})
        self._report(Report("api", "api", self.now_s, WindowDelta(60, {}, {}, recent), {}))

    def requests(self, api: str, per_s: float) -> None:
        """An api reports so many requests a second, and a lag of 20 ms."""
        labels = (("method", "GET"), ("route", "/livez"), ("status", "200"))
        recent = Recent(10.0, {("millrace_http_requests_total", labels): 10 * per_s})
        window = WindowDelta(60, {}, {("millrace_event_loop_lag_seconds", ()): 0.02}, recent)
        self._report(Report(api, "api", self.now_s, window, {}))

    def _report(self, report: Report) -> None:
        self.redis.hset(KEY, report.name, report.pack())

    @property
    def now_s(self) -> float:
        return clock.now().timestamp()

    def act(self, fn: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a function of the store for everybody, and commits."""
        with acting(self.database, EVERYBODY) as tx:
            return fn(tx, *args, **named)

    def set(self, policy: Policy = POLICY, pool: str = "default") -> None:
        self.act(scaling.set_policy, pool, policy, "key_1")

    def look(self, keeper: PoolController | None = None) -> PolicyRow:
        (keeper or self.keeper).run_once()
        return self.row

    @property
    def row(self) -> PolicyRow:
        found: PolicyRow = self.act(store.get, "default")
        return found

    @property
    def acts(self) -> list[tuple[str, int | None]]:
        events = self.act(store.events, "default")
        return [(one.act, one.desired) for one in reversed(events)]


@pytest.fixture
def told(tmp_path: Path) -> Path:
    return tmp_path / "told"


@pytest.fixture
def stage(
    database: Engine, settings: Settings, redis_client: "redis.Redis", tmp_path: Path, told: Path
) -> Iterator[Stage]:
    program = tmp_path / "scale"
    program.write_text(f'#!/bin/sh\necho "$*" >> {told}\n')
    program.chmod(0o700)
    for gauge in GAUGES.values():
        gauge.clear()  # of controllers that ran before in this process
    made = Stage(database, settings.evolve(scale_command=str(program)), redis_client)
    yield made
    made.close()


def gauge(name: str) -> float | None:
    return REGISTRY.get_sample_value(name, {"pool": "default"})


def test_every_pool_is_measured_nothing_decided_without_a_policy(stage: Stage, told: Path) -> None:
    stage.workers(2)
    stage.calls(150)
    stage.keeper.run_once()
    assert gauge("millrace_pool_capacity_used") == pytest.approx(0.75)
    assert gauge("millrace_pool_offered_replicas") == pytest.approx(1.5)
    assert gauge("millrace_pool_desired_replicas") is None
    assert not told.exists()


def test_a_decision_is_an_event_an_audit_entry_and_a_command(stage: Stage, told: Path) -> None:
    stage.workers(1)
    stage.calls(50)
    stage.set()
    assert stage.look().desired == 1
    stage.calls(280, "predicted_wait")
    row = stage.look()
    assert (row.desired, "2.80 replicas" in row.reason) == (4, True)
    assert told.read_text() == "default 1\ndefault 4\n"
    assert stage.acts == [("set", None), ("up", 4)]
    [event, _] = stage.act(store.events, "default")
    assert '"offered_replicas":2.8' in event.figures
    [one] = stage.act(audit.page, EVERYBODY, after=None, limit=9)
    assert (one.actor, one.act, one.target) == ("keeper", "scale.up", "default")
    stage.keeper.run_once()
    assert gauge("millrace_pool_desired_replicas") == 4


def test_a_spot_pool_has_its_share_others_stand_in_until_then(stage: Stage, told: Path) -> None:
    stage.workers(2)
    stage.calls(270)
    stage.set(replace(POLICY, spot_pool="spot", spot_share=0.75))
    assert [stage.look().desired for _ in range(2)] == [2, 4]
    assert told.read_text().splitlines() == ["default 2", "spot 2", "default 4", "spot 4"]
    stage.workers(4, pool="spot")
    stage.look()
    assert told.read_text().splitlines()[4:] == ["default 1"]
    lost = "SELECT incarnation FROM workers WHERE pool = 'spot' LIMIT 2"
    execute(stage.database, f"UPDATE workers SET state = 'lost' WHERE incarnation IN ({lost})")
    stage.look()
    assert told.read_text().splitlines()[5:] == ["default 2"]


def test_no_two_policies_act_on_one_pool(stage: Stage) -> None:
    mixed = replace(POLICY, spot_pool="spot", spot_share=0.5)
    stage.set(mixed)
    for pool, policy in (("spot", POLICY), ("other", mixed)):
        with pytest.raises(Conflict, match="would both scale one pool"):
            stage.set(policy, pool)
    stage.set(mixed)  # again
    with pytest.raises(Invalid, match="than its own"):
        stage.set(replace(mixed, spot_pool="spot"), "spot")


def test_apis_are_a_pool_whose_load_is_their_lag_and_their_requests(
    stage: Stage, told: Path
) -> None:
    stage.requests("api_1", 90.0)
    stage.set(replace(POLICY, requests_s=100.0, target_used=1.0), API_POOL)
    stage.keeper.run_once()
    assert told.read_text() == "api 1\n"
    stage.requests("api_2", 210.0)
    stage.keeper.run_once()
    assert told.read_text() == "api 1\napi 3\n"
    row: PolicyRow = stage.act(store.get, API_POOL)
    assert row.reason == "requests bring the work of 3.00 replicas, to be used for 100%"
    named = {"pool": API_POOL}
    for metric, value in (
        ("capacity_used", 1.5),
        ("requests_per_second", 300),
        ("event_loop_lag_seconds", 0.02),
    ):
        assert REGISTRY.get_sample_value(f"millrace_pool_{metric}", named) == pytest.approx(value)


def test_a_policy_is_one_of_its_pool(stage: Stage) -> None:
    spot = replace(POLICY, spot_share=0.5)
    cases = [
        (API_POOL, replace(POLICY, min_replicas=0), "min_replicas: 1 or more in the pool api"),
        (API_POOL, replace(spot, spot_pool="gpu"), "spot_pool: a pool of workers"),
        ("gpu", replace(spot, spot_pool=API_POOL), "spot_pool: a pool of workers"),
        ("gpu", replace(POLICY, lag_ms=50.0), "lag_ms: of the pool api alone"),
        ("gpu", replace(POLICY, requests_s=50.0), "requests_s: of the pool api alone"),
    ]
    for (pool, policy, problem), case in each(cases):
        with case, pytest.raises(Invalid, match=problem):
            stage.set(policy, pool)


def test_nothing_is_decided_once_reports_are_gone(stage: Stage) -> None:
    stage.workers(3)
    stage.calls(10)
    stage.set()
    stage.look()
    stage.redis.delete(KEY)
    assert (stage.look().desired, stage.acts) == (3, [("set", None)])


def test_one_of_two_keepers_acts_and_the_other_goes_on_after_it(stage: Stage, told: Path) -> None:
    stage.workers(1)
    stage.calls(100)
    stage.set()
    other = stage.another()
    for _ in range(2):
        stage.look()
    before = told.read_text()
    stage.calls(400)
    assert stage.look(other).desired == 2
    assert told.read_text() == before
    stage.keeper.close()
    eventually(lambda: stage.look(other).desired == 6)
    assert stage.acts == [("set", None), ("up", 2), ("up", 6)]


def test_a_pause_holds_a_number_and_a_resume_goes_on_from_it(stage: Stage, told: Path) -> None:
    stage.workers(1)
    stage.calls(50)
    stage.set()
    stage.look()
    for pool, replicas, error in (("default", 7, Invalid), ("gpu", 1, NotFound)):
        with pytest.raises(error):
            stage.act(scaling.pause, pool, "key_1", "", replicas)
    stage.act(scaling.pause, "default", "key_1", "a test", 3)
    stage.calls(400)
    assert stage.look().desired == 3
    assert told.read_text().splitlines()[-1] == "default 3"
    stage.act(scaling.resume, "default", "key_1", "")
    assert stage.look().desired == 6
    assert stage.acts == [("set", None), ("pause", 3), ("resume", 3), ("up", 6)]


def test_a_policy_of_another_release_is_read_as_far_as_possible(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.workers(1)
    stage.calls(250)
    for policy in ('{"max_replicas": 6, "spot": true}', '{"max_replicas": "x"}'):
        stage.set()
        execute(stage.database, "UPDATE pool_policies SET policy = :policy", {"policy": policy})
        for _ in range(2):
            stage.look()
    assert stage.row.desired == 4
    assert "can't be read" in caplog.text


def test_timers_survive_the_keeper(stage: Stage) -> None:
    stage.workers(3)
    stage.calls(1)
    stage.set(Policy(max_replicas=6, cooldown_s=3600, actuator="plan"))
    for _ in range(2):
        before = stage.look()
    stage.keeper.close()
    assert '"low_since_s":1' in before.state
    assert stage.look(stage.another()).state == before.state


def test_the_past_is_read_again_where_its_first_reading_had_no_answer(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.set()
    stage.workers(1)
    stage.calls(50)
    read, fails = arrivals.read, [True, False]

    def read_or_fail(tx: db.Tx, pool: str) -> Any:
        if fails.pop(0):
            raise psycopg.OperationalError
        return read(tx, pool)

    monkeypatch.setattr(arrivals, "read", read_or_fail)
    with pytest.raises(psycopg.OperationalError):
        stage.look()
    stage.look()
    assert not fails


def test_work_is_kept_by_bins_for_the_forecast(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now)
    stage.workers(1)
    stage.calls(30)
    stage.set()
    stage.look()
    now_s = stage.now_s
    with acting(stage.database, EVERYBODY) as tx:
        arrivals.add(tx, "default", now_s - 30 * 86_400, 5.0)
        arrivals.add(tx, "default", now_s, 0.5)
        arrivals.delete_old(tx, "default", now_s)
        kept = arrivals.read(tx, "default").work
    assert sum(kept.values()) == pytest.approx(0.4)
    assert {*kept} == {int(now_s // BIN_S)}


def test_a_lead_ends_with_its_connection(database_url: str, database: Engine) -> None:
    one, two = (Leadership(database_url, "millrace.test") for _ in range(2))
    assert [one.hold(), two.hold(), one.hold()] == [True, False, True]
    holders = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted"
    execute(database, f"SELECT pg_terminate_backend(pid) FROM ({holders}) AS h")
    eventually(two.hold)
    assert not one.hold()
    one.release()
    two.release()
