"""What the Open Inference Protocol says, as pydantic models: for /openapi.json, which alone reads
the requests' (`wire.py` checks them)."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jobs.models.inputs.tensors import DTYPES
from jobs.version import VERSION

_DATATYPE: dict[str, Any] = {"enum": list(DTYPES)}
_SIMPLE = [-1, 16]
_INPUTS: list[Any] = [
    {"name": name, "shape": [1, 16], "datatype": "INT32", "data": list(range(16))}
    for name in ("INPUT0", "INPUT1")
]


_METADATA = {
    "name": "simple",
    "versions": ["1"],
    "platform": "millrace_tensors",
    "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": _SIMPLE}],
    "outputs": [{"name": "OUTPUT0", "datatype": "INT32", "shape": _SIMPLE}],
}
_ANSWER = {
    "model_name": "simple",
    "model_version": "1",
    "id": "42",
    "parameters": {"total_ms": 4.2},
    "outputs": [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": data}
        for name, data in (("OUTPUT0", list(range(0, 32, 2))), ("OUTPUT1", [0] * 16))
    ],
}
INDEX = [{"name": "simple", "version": "1", "state": "READY", "reason": ""}]
_CONFIG = {
    "name": "simple",
    "platform": "",
    "backend": "millrace_tensors",
    "max_batch_size": 256,
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [16]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [16]}],
    "dynamic_batching": {},
}


def _shown(example: Any) -> ConfigDict:
    """How /openapi.json shows one."""
    return ConfigDict(json_schema_extra={"example": example})


class OipError(BaseModel):
    """What went wrong."""

    model_config = _shown({"error": "no model 'x' is served"})

    error: str


class Live(BaseModel):
    model_config = _shown({"live": True})

    live: bool


class Ready(BaseModel):
    model_config = _shown({"ready": True})

    ready: bool


class ReadyModel(Ready):
    model_config = _shown({"name": "simple", "ready": True})

    name: str


class ServerMetadata(BaseModel):
    model_config = _shown(
        {"name": "millrace", "version": VERSION, "extensions": ["binary_tensor_data"]}
    )

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """shape: -1 is any size; the first counts rows."""

    name: str
    datatype: str = Field(json_schema_extra=_DATATYPE)
    shape: list[int]


class ModelMetadata(BaseModel):
    model_config = _shown(_METADATA)

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata] = Field(description="none: it can't be asked by this protocol")
    outputs: list[TensorMetadata]


class TensorConfig(BaseModel):
    """dims: without the rows."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfig(BaseModel):
    """What Triton's model configuration calls it. max_batch_size: rows of one request."""

    model_config = _shown(_CONFIG)

    name: str
    platform: str
    backend: str
    max_batch_size: int
    input: list[TensorConfig]
    output: list[TensorConfig]
    dynamic_batching: dict[str, Any]


class IndexEntry(BaseModel):
    name: str
    version: str
    state: Literal["READY", "LOADING", "UNAVAILABLE"]
    reason: str = Field(description="why it can't be loaded somewhere")


class RequestInput(BaseModel):
    """data: flat, or nested as the shape; or binary_data_size among the parameters."""

    name: str
    shape: list[int] = Field(max_length=32)
    datatype: str = Field(json_schema_extra=_DATATYPE)
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: list[Any] | None = None


class RequestOutput(BaseModel):
    name: str
    parameters: dict[str, Any] = Field(default_factory=dict, description="binary_data")


class InferenceRequest(BaseModel):
    """The body of `infer`, or what it begins with."""

    model_config = _shown({"id": "42", "inputs": _INPUTS})

    id: str = Field(default="", description="comes back in the answer")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="priority (0: the usual, 1: interactive, 2: standard, more: bulk), timeout (in "
        "microseconds), binary_data_output",
    )
    inputs: list[RequestInput] = Field(min_length=1)
    outputs: list[RequestOutput] = Field(default_factory=list, description="absent: all")


class ResponseOutput(BaseModel):
    name: str
    datatype: str = Field(json_schema_extra=_DATATYPE)
    shape: list[int]
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: list[Any] | None = None


class InferenceAnswer(BaseModel):
    """The answer of `infer`, or what it begins with. parameters: where its time went, in ms."""

    model_config = _shown(_ANSWER)

    model_name: str
    model_version: str
    id: str = Field(description="the request's; without one, the call's")
    parameters: dict[str, Any]
    outputs: list[ResponseOutput]
