"""Recovered calls are counted by the keepers, each once, whoever recovered them."""

from pathlib import Path

import pytest
import redis

from jobs.calls.lanes import Terms
from jobs.calls.messages import Call
from jobs.calls.redis import RedisLanes, declare_dead
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from tests.integration.jobs.calls.made import ticket
from workers.keeper.call_recovery import CallRecovery

ENTRY = '[[model]]\nname = "x"\nversion = "1"\nengine = "echo"\n'


@pytest.fixture
def recovery(settings: Settings, tmp_path: Path) -> CallRecovery:
    path = tmp_path / "models.toml"
    path.write_text(ENTRY)
    return CallRecovery(settings, ModelsFile(path))


def taken(client: "redis.Redis", *ids: str) -> list[Call]:
    """Has a worker take calls."""
    lanes = RedisLanes(client, "x@1")
    lanes.announce("worker-1", 60)
    for id in ids:
        call = Call(id, "{}/64", "tenant", 1, 1, "api-1")
        assert lanes.put(call, target_ms=250, timeout_ms=60_000, most=100, terms=Terms()) is None
    return lanes.take(ticket(lanes.look("nobody/0"))) or []


def test_calls_that_the_keeper_recovers_are_counted(
    recovery: CallRecovery, redis_client: "redis.Redis"
) -> None:
    taken(redis_client, "a", "b")
    assert recovery.run_once() == 0
    RedisLanes(redis_client, "x@1").announce("worker-1", 0)
    assert [recovery.run_once(), recovery.run_once()] == [2, 0]


def test_calls_that_a_supervisor_recovered_are_counted_by_one_keeper(
    recovery: CallRecovery, redis_client: "redis.Redis"
) -> None:
    taken(redis_client, "a")
    declare_dead(redis_client, ["x@1"], "worker-1")
    assert [recovery.run_once(), recovery.run_once()] == [1, 0]


def test_dead_engines_calls_are_counted(
    recovery: CallRecovery, redis_client: "redis.Redis"
) -> None:
    [call] = taken(redis_client, "a")
    RedisLanes(redis_client, "x@1").recover([call.holder])
    assert recovery.run_once() == 1
