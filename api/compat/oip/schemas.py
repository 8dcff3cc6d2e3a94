"""Schemas of the Open Inference Protocol, for /openapi.json only: `wire.py` parses the requests."""

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
    """Returns a model configuration with an example."""
    return ConfigDict(json_schema_extra={"example": example})


class OipError(BaseModel):
    """Response with an error."""

    model_config = _shown({"error": "no model 'x' is served"})

    error: str


class Live(BaseModel):
    """Liveness of the server."""

    model_config = _shown({"live": True})

    live: bool


class Ready(BaseModel):
    """Readiness."""

    model_config = _shown({"ready": True})

    ready: bool


class ReadyModel(Ready):
    """Readiness of a model."""

    model_config = _shown({"name": "simple", "ready": True})

    name: str


class ServerMetadata(BaseModel):
    """Name, version and extensions of the server."""

    model_config = _shown(
        {"name": "millrace", "version": VERSION, "extensions": ["binary_tensor_data"]}
    )

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """Declared tensor."""

    name: str
    datatype: str = Field(json_schema_extra=_DATATYPE)
    shape: list[int] = Field(description="-1 is any size; the first dimension counts rows")


class ModelMetadata(BaseModel):
    """Model and its tensors."""

    model_config = _shown(_METADATA)

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata] = Field(description="empty: this protocol can't call it")
    outputs: list[TensorMetadata]


class TensorConfig(BaseModel):
    """Declared tensor, in Triton's model configuration."""

    name: str
    data_type: str
    dims: list[int] = Field(description="shape without rows")


class ModelConfig(BaseModel):
    """Triton's model configuration."""

    model_config = _shown(_CONFIG)

    name: str
    platform: str
    backend: str
    max_batch_size: int = Field(description="rows of one request")
    input: list[TensorConfig]
    output: list[TensorConfig]
    dynamic_batching: dict[str, Any]


class IndexEntry(BaseModel):
    """Model version in the repository index."""

    name: str
    version: str
    state: Literal["READY", "LOADING", "UNAVAILABLE"]
    reason: str = Field(description="error of a worker that can't load it")


class RequestInput(BaseModel):
    """Input tensor, as JSON or as binary data behind it."""

    name: str
    shape: list[int] = Field(max_length=32)
    datatype: str = Field(json_schema_extra=_DATATYPE)
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: list[Any] | None = Field(
        default=None, description="flat, or nested as the shape; absent with binary_data_size"
    )


class RequestOutput(BaseModel):
    """Requested output."""

    name: str
    parameters: dict[str, Any] = Field(default_factory=dict, description="binary_data")


class InferenceRequest(BaseModel):
    """The body of `infer`, or the JSON that it begins with."""

    model_config = _shown({"id": "42", "inputs": _INPUTS})

    id: str = Field(default="", description="returned in the response")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="priority (0: default, 1: interactive, 2: standard, more: bulk), timeout (in "
        "microseconds), binary_data_output",
    )
    inputs: list[RequestInput] = Field(min_length=1)
    outputs: list[RequestOutput] = Field(default_factory=list, description="default: all")


class ResponseOutput(BaseModel):
    """Output tensor, as JSON or as binary data behind it."""

    name: str
    datatype: str = Field(json_schema_extra=_DATATYPE)
    shape: list[int]
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: list[Any] | None = None


class InferenceResponse(BaseModel):
    """The response of `infer`, or the JSON that it begins with. `parameters` says where the time
    went, in ms."""

    model_config = _shown(_ANSWER)

    model_name: str
    model_version: str
    id: str = Field(description="id of the request; without one, of the call")
    parameters: dict[str, Any]
    outputs: list[ResponseOutput]
