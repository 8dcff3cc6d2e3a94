"""Actuator `kubernetes`, beside a cluster that changes or answers late; workloads of pools."""

import pytest

from tests.support.cases import each
from workers.keeper.scaling.actuators.protocol import ActuatorError
from workers.scaler import workloads
from workers.scaler.actuator import Conflict, KubernetesActuator
from workers.scaler.workloads import Workload

WORKLOAD = Workload("gpu", "deployment", "worker")


def test_each_pool_has_its_workload_and_what_is_wrong_with_one_is_said() -> None:
    assert workloads.parse("gpu=ml/deployment/worker-gpu, cpu=ml/statefulset/worker.cpu") == {
        "gpu": Workload("ml", "deployment", "worker-gpu"),
        "cpu": Workload("ml", "statefulset", "worker.cpu"),
    }
    assert workloads.parse("") == {}
    said = {
        "gpu": "write pool=namespace/deployment/name",
        "gpu=worker": "write pool=",
        "gpu=ml/daemonset/worker": "write pool=",
        "gpu=ml/deployment/../x": "write pool=",
        "a=ml/deployment/w,b=ml/deployment/w": "a workload is of one pool",
        "a=ml/deployment/w,a=ml/deployment/v": "a pool has one workload",
    }
    for (text, why), case in each(said.items()):
        with case, pytest.raises(ValueError, match=why):
            workloads.parse(text)


class Scales:
    """Scale of one workload."""

    def __init__(self, replicas: int) -> None:
        self.replicas = replicas
        self.late = False

    def read_scale(self, workload: Workload) -> tuple[int, str]:
        return self.replicas, "1"

    def set_scale(self, workload: Workload, replicas: int, version: str) -> None:
        self.replicas = replicas
        if self.late:
            raise ActuatorError("no answer within 5 s")


def test_a_write_whose_answer_was_lost_is_ours_and_a_pod_that_changed_is_looked_at_again() -> None:
    scales = Scales(1)
    actuator = KubernetesActuator(scales, {"gpu": WORKLOAD})
    assert actuator.apply("gpu", 2)
    scales.late = True
    with pytest.raises(ActuatorError, match="no answer"):
        actuator.apply("gpu", 3)
    assert not actuator.apply("gpu", 3)
    tries = list[int]()

    def choose(pool: str, workload: Workload, fewer: int) -> None:
        tries.append(fewer)
        if len(tries) == 1:
            raise Conflict

    scales = Scales(3)
    assert KubernetesActuator(scales, {"gpu": WORKLOAD}, choose).apply("gpu", 1)
    assert (scales.replicas, tries) == (1, [2, 2])
