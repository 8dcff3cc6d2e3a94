"""What calls used comes into the ledger once, whoever moves it and dies in between."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from jobs.calls.memory import MemoryLanes
from jobs.calls.messages import Call, Reply
from jobs.calls.redis import RedisLanes
from jobs.models.inputs.generation import TokenUsage
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store.billing import ledger
from tests.integration.jobs.calls.made import FREE, ticket
from tests.support.stores.soundness import broken_invariants
from workers.keeper.call_billing import CallBilling

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
        self,
        id: str,
        tenant: str = "acme",
        job_class: Any = "standard",
        tokens: TokenUsage | None = None,
    ) -> None:
        call = Call(id, "{}/64", tenant, None, 10, "api-1", 1.0, job_class)
        put = self.lanes.put(call, target_ms=250, timeout_ms=60_000, most=100, terms=FREE)
        assert put is None
        assert self.lanes.take(ticket(self.lanes.look("nobody/0")))
        self.lanes.reply("api-1", [Reply(id, b"1", None, 10, {}, tenant, job_class, 1000, tokens)])

    def billed(self) -> list[tuple[Any, ...]]:
        query = "SELECT at, tenant_id, class, succeeded, units, device_us, amount FROM usage"
        with self.database.connect() as tx:
            rows = tx.execute(text(query + " ORDER BY at, tenant_id, class"))
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
    query = text("SELECT input_tokens, cached_tokens, output_tokens, amount FROM usage")
    with stage.database.connect() as tx:
        assert tuple(tx.execute(query).one()) == (1000, 400, 200, Decimal("1.312"))


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

    def away(*_: object) -> None:
        raise OperationalError("", {}, Exception("away"))

    with monkeypatch.context() as patch:
        patch.setattr(ledger, "bill_calls", away)
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
    with database.connect() as tx:
        row = tx.execute(text("SELECT model, version, succeeded, amount FROM usage")).one()
    assert tuple(row) == ("gone", "2", 3, 0)
    assert not redis_client.exists(gone.keys("used"))
