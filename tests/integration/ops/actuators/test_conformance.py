"""One suite over all actuators: a pool gets what was decided, by one who acts, again and again."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis
from sqlalchemy import Engine

from jobs.scaling.policy import ACTUATIONS
from jobs.settings import Settings
from tests.integration.ops.actuators.rigs import Rig, Stage
from tests.support.servers import kubernetes_api
from tests.support.wait import eventually
from workers.keeper.scaling.actuators import command

ACTING = [name for name in ACTUATIONS if name != "plan"]
each = pytest.mark.parametrize("name", ACTUATIONS)
each_that_acts = pytest.mark.parametrize("name", ACTING)


@pytest.fixture
def stage(
    database: Engine, keeper: Engine, settings: Settings, redis_client: Redis,
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Stage]:  # fmt: skip
    monkeypatch.setattr(command, "AGAIN_S", command.AGAIN_S)
    with kubernetes_api.running() as api:
        monkeypatch.setenv("KUBECONFIG", str(api.kubeconfig(tmp_path)))
        with closing(Stage(database, keeper, settings, redis_client, tmp_path, api)) as made:
            yield made


def brings(rig: Rig, replicas: int, of: int = 0) -> bool:
    """Lets it look once; returns True if the pool has that number."""
    rig.look(of)
    return rig.replicas() == replicas


@each
def test_a_pool_gets_what_was_decided_last_and_no_more_is_done(stage: Stage, name: str) -> None:
    rig = stage.give(name)
    for replicas in (2, 5, 1, 0, 3):
        stage.decide(replicas)
        eventually(lambda n=replicas: brings(rig, n))
    before = rig.deeds()
    for _ in range(3):
        assert brings(rig, 3)
    assert rig.deeds() == before
    assert stage.failures == []


@each_that_acts
def test_what_others_do_to_a_pool_is_brought_back(stage: Stage, name: str) -> None:
    rig = stage.give(name)
    stage.decide(2)
    eventually(lambda: brings(rig, 2))
    rig.disturb()
    assert rig.replicas() != 2
    eventually(lambda: brings(rig, 2))


@each_that_acts
def test_a_failure_is_an_event_once_and_is_tried_again(stage: Stage, name: str) -> None:
    rig = stage.give(name)
    stage.decide(1)
    eventually(lambda: brings(rig, 1))
    rig.break_()
    stage.decide(2)
    for _ in range(3):
        rig.look()
    assert rig.replicas() == 1
    [failure] = stage.failures
    assert failure
    rig.mend()
    eventually(lambda: brings(rig, 2))
    rig.break_()
    stage.decide(3)
    rig.look()
    assert stage.failures == [failure, stage.failures[-1]]  # it had worked meanwhile
    rig.mend()


@each_that_acts
def test_of_two_one_acts_and_the_other_goes_on_after_it(stage: Stage, name: str) -> None:
    rig = stage.give(name)
    stage.decide(2)
    eventually(lambda: brings(rig, 2))
    before = rig.deeds()
    stage.decide(4)
    assert not brings(rig, 4, of=1)
    assert rig.deeds() == before
    rig.close(of=0)
    eventually(lambda: brings(rig, 4, of=1))


@each
def test_nobody_acts_on_a_pool_but_the_one_that_its_policy_names(stage: Stage, name: str) -> None:
    rig = stage.give(name)
    stage.decide(2)
    eventually(lambda: brings(rig, 2))
    others = [other for its, other in stage.rigs.items() if its not in (name, "plan")]
    for other in others:
        other.look()
        other.look(of=1)
    assert [(other.replicas(), other.deeds()) for other in others] == [(0, 0)] * len(others)
