"""Devices that are named by UUID."""

import pytest

from jobs.settings import Settings
from workers.device.monitoring.device_info import device_name
from workers.engines import cuda_uuid


@pytest.mark.parametrize("uuid", ["GPU-8f2a1c3e", "MIG-41b36014"])
def test_a_device_by_uuid_is_the_only_one_that_its_process_sees(uuid: str) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "0,1"}
    cuda_uuid.show_only(uuid, environment)
    assert environment == {"CUDA_VISIBLE_DEVICES": uuid}
    assert cuda_uuid.torch_name(uuid) == "cuda"
    assert device_name(Settings(device=uuid)) == "cuda"


@pytest.mark.parametrize("name", ["", "cpu", "cuda:1"])
def test_torchs_own_names_change_nothing(name: str) -> None:
    environment: dict[str, str] = {}
    cuda_uuid.show_only(name, environment)
    assert environment == {}
    assert cuda_uuid.torch_name(name) == name
