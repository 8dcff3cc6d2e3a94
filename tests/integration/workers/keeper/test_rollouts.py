"""Rollouts: what a keeper does with the launches of two lanes, and what people say."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
import redis
from sqlalchemy import Engine, text

from jobs import clock
from jobs.calls.streams.rollout import append, stream_key
from jobs.errors import Conflict, Invalid, NotFound
from jobs.models.model import Model
from jobs.models.registry import Registry
from jobs.rollouts.policy import Policy
from jobs.rollouts.records import LaunchRecord
from jobs.settings import Settings
from jobs.store import db
from jobs.store.billing import spend
from jobs.store.queue import workers
from jobs.store.registry import aliases
from jobs.store.registry import rollouts as store
from jobs.store.registry.rollouts import RolloutRow
from jobs.store.tenancy import EVERYBODY, acting
from jobs.usecases import rollouts
from jobs.usecases.rollouts import Verb
from jobs.views.rollouts import status_object
from workers.keeper.rollouts.controller import RolloutController

MODELS = Registry([Model("m", version, "echo") for version in ("1", "2", "3")])
POLICY = Policy(steps=(5, 50, 100), min_launches=50, min_stay_s=0)


class Stage:
    """A rollout, and keepers that look at it when they are told to."""

    def __init__(self, database: Engine, settings: Settings, client: "redis.Redis") -> None:
        self.database, self._settings, self.redis = database, settings, client
        self.rng = random.Random(1)
        self._ends: list[Callable[[], None]] = []
        with acting(database, EVERYBODY) as tx:
            spend.set_endpoint(tx, "default", "https://example.org/hook")
            self.id = rollouts.start(
                tx, MODELS, "m", "3", policy=POLICY, actor="key_1", tenant="default"
            ).id
        self.keeper = self.another()

    def another(self) -> RolloutController:
        role = db.connect(self._settings.database_url, pool_size=2, role=db.WORKER)
        keeper = RolloutController(self._settings, role)
        self._ends += [keeper.close, role.dispose]
        return keeper

    def close(self) -> None:
        for end in self._ends:
            end()

    def launches(
        self, count: int, *, failed: int = 0, factor: float = 1.0, alone: bool = False
    ) -> None:
        """Appends launches of both lanes. failed: every n-th of the canary; factor: of its cost;
        alone: without the control's."""
        records = []
        for n in range(count):
            ms, price = self.rng.uniform(8, 12), self.rng.uniform(0.9, 1.1)
            own: dict[str, Any] = {"latency_ms": ms, "device_ms": ms, "size": (2, 20.0, 200.0, 0)}
            bad = 2 if failed and n % failed == 0 else 0
            records += [
                LaunchRecord(0.0, "control", 2, price=price, **own),
                LaunchRecord(0.0, "canary", 2, bad, price=factor * price, **own),
            ]
        chosen = records[1::2] if alone else records
        append(self.redis, str(self.id), *([one] for one in chosen))

    def look(self, keeper: RolloutController | None = None) -> RolloutRow:
        (keeper or self.keeper).run_once()
        return self.row

    def act(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of the store for everybody, and commits."""
        with acting(self.database, EVERYBODY) as tx:
            return fn(tx, *args)

    def say(self, verb: Verb) -> Any:
        figures = {id: look["figures"] for id, look in self.keeper.latest.items()}
        return self.act(rollouts.act, "m", verb, "key_1", "I said so", figures)

    @property
    def row(self) -> RolloutRow:
        found: RolloutRow = self.act(rollouts.find, store.ids.show("rollout", self.id))
        return found

    @property
    def acts(self) -> list[str]:
        return [event.act for event in reversed(self.act(store.events, self.id))]

    def status(self, look: dict[str, Any]) -> dict[str, Any]:
        return status_object(self.row, self.act(store.events, self.id), look)

    def alias(self) -> Any:
        return self.act(aliases.get, "m", "stable")


@pytest.fixture
def stage(database: Engine, settings: Settings, redis_client: "redis.Redis") -> Iterator[Stage]:
    made = Stage(database, settings, redis_client)
    yield made
    made.close()


def test_a_start_names_the_stable_version_that_a_rollback_goes_back_to(stage: Stage) -> None:
    assert (stage.row.stable, stage.row.canary, stage.row.percent) == ("2", "3", 5)
    assert stage.alias() == "2"
    terms: dict[str, Any] = {"policy": POLICY, "actor": "key_1", "tenant": "default"}
    with acting(stage.database, EVERYBODY) as tx:
        with pytest.raises(Conflict, match="rollout already"):
            rollouts.start(tx, MODELS, "m", "1", **terms)
        for canary, stable in (("9", ""), ("3", "9"), ("3", "3")):
            with pytest.raises(Invalid, match="version"):
                rollouts.start(tx, MODELS, "m", canary, stable=stable, **terms)


def test_a_canary_like_the_version_before_goes_through_all_steps(stage: Stage) -> None:
    for percent in (50, 100):
        stage.launches(60)
        assert stage.look().percent == percent
    stage.launches(40, alone=True, failed=4)
    assert stage.look(stage.another()).percent == 100  # without a control nothing is compared
    stage.launches(20, alone=True)
    assert stage.look().state == "promoted"
    assert stage.acts == ["start", "advance", "advance", "promote"]
    assert stage.alias() == "3"


def test_a_canary_that_fails_is_rolled_back_with_event_audit_and_webhook(stage: Stage) -> None:
    stage.launches(40, failed=2)
    row = stage.look()
    assert row.state == "rolled_back"
    assert row.ended_at
    assert "launches with a failed call" in row.reason
    with acting(stage.database, EVERYBODY) as tx:
        [event, _] = store.events(tx, stage.id)
        told = list(tx.execute(text("SELECT type, about->>'reason' FROM webhook_deliveries")))
        [audited] = tx.execute(text("SELECT act, target FROM audit WHERE actor = 'keeper'"))
    assert event.actor == "keeper"
    assert orjson.loads(event.figures)["lanes"]["canary"]["failed"] == 40
    assert ("rollout.roll_back", row.reason) in [tuple(one) for one in told]
    assert tuple(audited) == ("rollout.roll_back", row.shown_id)
    assert stage.alias() == "2"


def test_a_dearer_canary_is_held_until_a_person_lets_it_go_on(stage: Stage) -> None:
    stage.launches(300, factor=1.1)
    held = stage.look()
    assert held.state == "held"
    assert held.reason.startswith("price a call +")
    assert stage.look().state == "held"
    assert stage.say("resume").state == "running"
    assert stage.look().percent == 50


def test_a_keeper_that_starts_again_knows_what_the_one_before_did(stage: Stage) -> None:
    stage.launches(60)
    stage.look()
    stage.launches(30)
    stage.look()
    evidence = [watch.observations for watch in stage.keeper.watches.values()]
    other = stage.another()
    stage.look(other)
    again = [watch.observations for watch in other.watches.values()]
    for name in ("evidence", "canary", "step_canary"):
        assert getattr(again[0], name) == getattr(evidence[0], name)


def test_what_a_keeper_saw_is_shown_and_kept_with_a_persons_act(stage: Stage) -> None:
    stage.launches(30)
    row = stage.look()
    look = stage.keeper.latest[row.shown_id]
    seen = stage.status(look)
    assert seen["waits_for"] == "30 launches of 50 at this step"
    assert seen["figures"]["lanes"]["canary"]["launches"] == 30
    assert stage.status({})["figures"] == {}  # no keeper has reported yet
    stage.say("roll_back")
    ended = stage.status({})
    assert (ended["events"][0]["actor"], ended["waits_for"]) == ("key_1", "")
    assert ended["figures"] == look["figures"]
    stage.look()
    assert stage.keeper.latest == {}


def test_of_two_keepers_one_acts(stage: Stage) -> None:
    stage.launches(60)
    before, other = stage.row, stage.another()
    stage.look()
    with acting(stage.database, EVERYBODY) as tx:
        decision = other.watch(before, store.step_times(tx, before.id)).decide("broken")
        assert decision.act == "roll_back"
        assert store.apply(tx, before, decision, "keeper") is None
    assert stage.acts == ["start", "advance"]


def test_redis_that_lost_the_stream_loses_evidence_alone(stage: Stage) -> None:
    stage.launches(60)
    stage.look()
    stage.redis.delete(stream_key(str(stage.id)))
    assert stage.look().percent == 50
    stage.launches(60)
    assert stage.look().percent == 100


def test_a_canary_that_no_worker_can_load_is_rolled_back(stage: Stage) -> None:
    failed = workers.ModelRow("m@3", "failed", 0, 0, "no such file")
    with stage.database.begin() as tx:
        worker = workers.register(tx, "w", "default", "cpu", ["m@3"])
        workers.heartbeat(tx, worker, "ready")
        workers.report_models(tx, worker, [failed])
    row = stage.look()
    assert row.state == "rolled_back"
    assert row.reason == "no worker could load the canary: no such file"


def test_people_hold_resume_promote_and_roll_back(stage: Stage) -> None:
    assert stage.say("hold").reason == "by key_1: I said so"
    with pytest.raises(Conflict, match="is held"):
        stage.say("hold")
    assert stage.say("resume").state == "running"
    assert stage.say("promote").state == "promoted"
    assert stage.alias() == "3"
    with pytest.raises(Conflict, match="is promoted"):
        stage.say("roll_back")
    with pytest.raises(NotFound):
        stage.act(rollouts.find, "nothing")
    assert clock.now() > stage.row.started_at
