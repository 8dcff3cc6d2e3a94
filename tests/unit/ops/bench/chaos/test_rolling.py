"""A rolling upgrade as a fault: one process after another."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from ops.bench.chaos.clients.client import Ledger
from ops.bench.chaos.clients.load import Load
from ops.bench.chaos.faults.rolling import rolling_upgrade
from ops.bench.chaos.faults.targets import Proof, Stage
from ops.bench.chaos.fleet import Fleet
from tests.support.wait import eventually

pytestmark = pytest.mark.heavy


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three processes that end at SIGTERM."""
    made = Fleet(tmp_path / "home", apis=0, keepers=3, workers=0)
    for keeper in made.keepers:
        keeper.argv = ["sleep", "600"]
    made.supervisor.start()
    yield made
    made.supervisor.stop()


@pytest.fixture
def stage(fleet: Fleet, tmp_path: Path) -> Iterator[Stage]:
    ledger = Ledger(tmp_path / "ledger")
    yield Stage(fleet, Load([], fleet.settings.redis_url, 1, ledger))
    ledger.close()


def test_each_process_is_replaced_once_the_one_before_is_up_again(
    fleet: Fleet, stage: Stage
) -> None:
    steps, waiting = rolling_upgrade(stage, Random(0)), rolling_upgrade(stage, Random(0))
    before = {keeper.pid for keeper in fleet.keepers}

    def step() -> Proof | None:
        fleet.supervisor.poll()
        try:
            next(steps)
        except StopIteration as done:
            proof: Proof = done.value
            return proof
        next(waiting)
        assert sum(not keeper.alive() for keeper in fleet.keepers) <= 1
        assert len(fleet.drained) <= 1
        assert fleet.drained <= stage.busy
        return None

    proof = eventually(step)
    names = [keeper.name for keeper in fleet.keepers]
    assert proof["wait_statuses"] == dict.fromkeys(names, "SIGTERM")
    assert [keeper.restarts for keeper in fleet.keepers] == [1, 1, 1]
    assert not before & {keeper.pid for keeper in fleet.keepers}
    assert stage.busy == set()
    next(waiting)
    assert "upgrade" in stage.busy
