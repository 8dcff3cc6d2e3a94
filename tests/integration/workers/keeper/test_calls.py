"""What calls used comes into the ledger once, and those that were recovered are counted once,
whoever does it and dies in between."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import redis
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError

from jobs.calls.lanes import Terms
from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Call, Reply
from jobs.calls.redis import RedisLanes, declare_dead
from jobs.models.inputs.generation import TokenUsage
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store.billing import ledger
from tests.integration.jobs.calls.made import FREE, ticket
from tests.support.cases import each
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.transactions import fetch
from workers.keeper.call_billing import CallBilling
from workers.keeper.call_recovery import CallRecovery

ENTRY = """
[[model]]
name = "x"
version = "1"
engine = "echo"
[model.price]
per_item = 0.5
per_1k_units = 1
per_device_s = 2
per_1k_output_tokens = 4
class = { bulk = 0.5 }
"""
MINUTE_MS = 60_000.0


class Stage:
    """One model's lanes on a clock of the test, and a keeper's meter."""

    def __init__(self, database: Engine, settings: Settings, path: Path) -> None:
        path.write_text(ENTRY)
        self.now_ms = 1000 * MINUTE_MS
        self.lanes = MemoryLanes(lambda: self.now_ms)
        self.lanes.announce("worker-1", 1e9)
        self.database, self._settings, self._path = database, settings, path
        self.meter = self.another()

    def another(self) -> CallBilling:
        file = ModelsFile(self._path)
        return CallBilling(self._settings.redis_url, self.database, file, lambda _: self.lanes)

    def call(
        self, id: str, tenant: str = "acme", job_class: Any = "standard",
        tokens: TokenUsage | None = None,
    ) -> None:  # fmt: skip
        call = Call(id, "{}/64", tenant, None, 10, "api-1", 1.0, job_class)
        put = self.lanes.put(call, target_ms=250, timeout_ms=60_000, most=100, terms=FREE)
        assert put is None
        assert self.lanes.take(ticket(self.lanes.look("nobody/0")))
        self.lanes.reply("api-1", [Reply(id, b"1", None, 10, {}, tenant, job_class, 1000, tokens)])

    def billed(self) -> list[tuple[Any, ...]]:
        query = "SELECT at, tenant_id, class, succeeded, units, device_us, amount FROM usage"
        rows = fetch(self.database, query + " ORDER BY at, tenant_id, class")
        return [(row[0].timestamp() / 60, *row[1:]) for row in rows]


@pytest.fixture
def stage(database: Engine, settings: Settings, tmp_path: Path) -> Stage:
    return Stage(database, settings, tmp_path / "models.toml")


def test_minutes_that_are_over_are_billed_by_class_and_forgotten(stage: Stage) -> None:
    stage.call("a")
    stage.call("b")
    stage.call("c", job_class="bulk")
    assert (stage.meter.run_once(), stage.billed()) == (0, [])
    stage.now_ms += MINUTE_MS
    stage.call("d", tenant="other")
    assert stage.meter.run_once() == 2
    assert stage.billed() == [
        (1000, "acme", "bulk", 1, 10, 1000, Decimal("0.256")),
        (1000, "acme", "standard", 2, 20, 2000, Decimal("1.024")),
    ]
    [left] = stage.lanes.usage(unfinished=True)
    assert (left.minute, left.tenant) == (1001, "other")
    assert broken_invariants(stage.database) == set()


def test_tokens_of_calls_come_into_the_ledger(stage: Stage) -> None:
    stage.call("a", tokens=TokenUsage(1000, 400, 200))
    stage.now_ms += MINUTE_MS
    assert stage.meter.run_once() == 1
    query = "SELECT input_tokens, cached_tokens, output_tokens, amount FROM usage"
    assert fetch(stage.database, query) == [(1000, 400, 200, Decimal("1.312"))]


def test_a_keeper_that_dies_before_it_forgets_bills_nothing_twice(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.call("a")
    stage.now_ms += MINUTE_MS
    with monkeypatch.context() as patch:
        patch.setattr(stage.lanes, "forget_usage", lambda used: None)
        assert stage.meter.run_once() == 1
    assert stage.another().run_once() == 1
    assert [row[3] for row in stage.billed()] == [1]
    assert stage.lanes.usage(unfinished=True) == []


def test_a_database_away_loses_no_minute(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.call("a")
    stage.now_ms += MINUTE_MS
    away = OperationalError("", {}, Exception("away"))
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "bill_calls", Mock(side_effect=away))
        with pytest.raises(OperationalError):
            stage.meter.run_once()
    assert stage.meter.run_once() == 1
    assert [row[3] for row in stage.billed()] == [1]


def test_what_a_model_used_that_is_declared_no_more_is_found(
    database: Engine, settings: Settings, redis_client: "redis.Redis", tmp_path: Path
) -> None:
    path = tmp_path / "models.toml"
    path.write_text(ENTRY)
    gone = RedisLanes(redis_client, "gone@2")
    redis_client.hset(gone.keys("used"), "1000 standard succeeded acme", 3)
    meter = CallBilling(settings.redis_url, database, ModelsFile(path))
    assert meter.run_once() == 1
    query = "SELECT model, version, succeeded, amount FROM usage"
    assert fetch(database, query) == [("gone", "2", 3, 0)]
    assert not redis_client.exists(gone.keys("used"))


def test_recovered_calls_are_counted_once_whoever_recovers_them(
    settings: Settings, redis_client: "redis.Redis", tmp_path: Path
) -> None:
    path = tmp_path / "models.toml"
    path.write_text(ENTRY)
    recovery, lanes = CallRecovery(settings, ModelsFile(path)), RedisLanes(redis_client, "x@1")
    ways: dict[str, Callable[[Call], object]] = {
        "the keeper": lambda call: lanes.announce("worker-1", 0),
        "a supervisor": lambda call: declare_dead(redis_client, ["x@1"], "worker-1"),
        "a worker whose engine died": lambda call: lanes.recover([call.holder]),
    }
    for way, case in each(ways):
        redis_client.flushall()
        lanes.announce("worker-1", 60)
        for id in "ab":
            call = Call(id, "{}/64", "tenant", 1, 1, "api-1")
            bounds = {"target_ms": 250, "timeout_ms": 60_000, "most": 100}
            assert lanes.put(call, **bounds, terms=Terms()) is None
        [call, _] = lanes.take(ticket(lanes.look("nobody/0"))) or []
        with case:
            assert recovery.run_once() == 0
            ways[way](call)
            assert [recovery.run_once(), recovery.run_once()] == [2, 0]
