"""The platform that the tests of the Open Inference Protocol share, and clients of an admin."""

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput, InferResult
from tritonclient.utils import np_to_triton_dtype

from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.tensors import DTYPES
from jobs.models.model import Limits, Model
from ops.bench.harness.models_files import models_file, sample
from ops.supervisor.platform import Platform
from tests.support.clients import bearer
from tests.support.keys import make_key_at
from tests.support.wait import eventually

LARGE = 224


def served(name: str, function: str, declared: list[dict[str, Any]]) -> Model:
    """Declares a model whose outputs are named as its inputs."""
    path = f"tests.support.models.tensor:{function}"
    options = {"function": path, "inputs": declared, "outputs": declared}
    return Model(name, "1", "tensors", options=options)


def of(name: str, datatype: str, *shape: int) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape)}


FP32 = [of("x", "FP32", -1)]
ENTRIES = [
    sample("simple"),
    sample("simple", version="2", limits={"max_tokens": 4}),
    sample(
        "image-classifier",
        options={
            **SAMPLES.resolve("image-classifier").options,
            "inputs": [of("image", "UINT8", -1, LARGE, LARGE, 3)],
        },
        limits={"max_tokens": 8, "max_item_bytes": 2_000_000},
    ),
    served("every", "same", [of(name, name, -1, -1) for name in DTYPES]),
    served("slow", "slow", FP32),
    served("nan", "nan", FP32),
    served("broken", "broken", FP32),
    Model("chat", "1", "echo", task="chat", limits=Limits(max_batch=2)),
]
MODELS = models_file(*ENTRIES)


class Triton(InferenceServerClient):  # type: ignore[misc]
    """Their client; each request with the key."""

    def __init__(self, platform: Platform, headers: dict[str, str]) -> None:
        super().__init__(platform.url.removeprefix("http://"), concurrency=8)
        self.headers = headers

    def ask(self, model: str, arrays: dict[str, NDArray[Any]], **more: Any) -> InferResult:
        binary = more.pop("binary", True)
        inputs = given_inputs(arrays, binary)
        return self.infer(model, inputs, headers=dict(self.headers), **more)


def given_inputs(arrays: dict[str, NDArray[Any]], binary: bool) -> list[InferInput]:
    inputs = []
    for name, array in arrays.items():
        inputs.append(InferInput(name, list(array.shape), np_to_triton_dtype(array.dtype)))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    return inputs


def wanted(binary: bool | None, *names: str) -> list[InferRequestedOutput] | None:
    """None: what their client asks for by itself, all of them and binary."""
    if binary is None:
        return None
    return [InferRequestedOutput(name, binary_data=binary) for name in names]


LEFT = np.arange(32, dtype=np.int32).reshape(2, 16)
RIGHT = np.full((2, 16), 7, np.int32)
PAIR = {"INPUT0": LEFT, "INPUT1": RIGHT}
each_encoding = pytest.mark.parametrize("binary", [True, False])


@pytest.fixture(scope="module")
def headers(platform: Platform) -> dict[str, str]:
    """Headers of an admin: since a key was made, nobody comes in without one."""
    key, _ = make_key_at(platform.settings.database_url, "oip", role="admin")
    return bearer(key)


@pytest.fixture(scope="module")
def http(platform: Platform, headers: dict[str, str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=platform.url, headers=headers) as made:
        eventually(lambda: made.get("/keys").status_code == 200)
        yield made


@pytest.fixture(scope="module")
def triton(platform: Platform, headers: dict[str, str], http: httpx.Client) -> Iterator[Triton]:
    with Triton(platform, headers) as made:
        yield made
