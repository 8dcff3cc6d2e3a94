"""Names of devices, and their errors, which are told from those of a launch and of an input."""

import pytest

from jobs.settings import Settings
from workers.device.monitoring.device_info import device_name
from workers.engines import cuda_uuid
from workers.engines.common.device_errors import device_failure
from workers.engines.protocol import DeviceFailed


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


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: uncorrectable ECC error encountered\nCUDA kernel errors might be …",
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR",
        "CUDA driver error: unknown error",
        "cudaErrorIllegalAddress: an illegal memory access was encountered",
    ],
)
def test_an_error_that_outlives_the_launch_is_the_devices(message: str) -> None:
    failure = device_failure(RuntimeError(message))
    assert (str(failure), failure.by_input) == (message.partition("\n")[0], False)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: invalid configuration argument"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"),
        RuntimeError("CUDA error: no kernel image is available for execution on the device"),
        RuntimeError("CUDA error: invalid device function"),
        RuntimeError("CUDA error: operation not permitted when stream is capturing"),
        RuntimeError("cuDNN error: CUDNN_STATUS_BAD_PARAM"),
        RuntimeError("can't serve 'CUDA error: x'"),
        ValueError("CUDA error: quoted from an input"),
        "CUDA error: an output",
        None,
    ],
)
def test_other_errors_are_not(error: object) -> None:
    assert device_failure(error) is None


def test_an_engine_may_say_it_itself_and_an_assertion_is_caused_by_an_input() -> None:
    said = DeviceFailed("the accelerator is gone")
    assert device_failure(said) is said
    assert device_failure(RuntimeError("CUDA error: device-side assert triggered")).by_input
