"""Workloads of pools, as settings name them."""

import pytest

from workers.scaler import workloads
from workers.scaler.workloads import Workload


def test_each_pool_has_its_workload() -> None:
    assert workloads.parse("gpu=ml/deployment/worker-gpu, cpu=ml/statefulset/worker.cpu") == {
        "gpu": Workload("ml", "deployment", "worker-gpu"),
        "cpu": Workload("ml", "statefulset", "worker.cpu"),
    }
    assert workloads.parse("") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("gpu", "write pool=namespace/deployment/name"),
        ("gpu=worker", "write pool="),
        ("gpu=ml/daemonset/worker", "write pool="),
        ("gpu=ml/deployment/../x", "write pool="),
        ("a=ml/deployment/w,b=ml/deployment/w", "a workload is of one pool"),
        ("a=ml/deployment/w,a=ml/deployment/v", "a pool has one workload"),
    ],
)
def test_what_is_wrong_with_them_is_said(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        workloads.parse(text)
