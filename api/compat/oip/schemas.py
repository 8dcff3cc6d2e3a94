"""Schemas of the Open Inference Protocol, for /openapi.json only: `wire.py` parses the requests."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from jobs.models.inputs.tensors import DTYPES
from jobs.version import VERSION

_DATATYPE: dict[str, Any] = {"enum": list(DTYPES)}
_INPUTS = [
    {"name": name, "shape": [1, 16], "datatype": "INT32", "data": list(range(16))}
    for name in ("INPUT0", "INPUT1")
]
_OUTPUTS = [
    {"name": name, "shape": [1, 16], "datatype": "INT32", "data": data}
    for name, data in (("OUTPUT0", list(range(0, 32, 2))), ("OUTPUT1", [0] * 16))
]
INDEX = [{"name": "simple", "version": "1", "state": "READY", "reason": ""}]  #: example
_Name = Annotated[str, Field(examples=["simple"])]


class OipError(BaseModel):
    """Response with an error."""

    error: str = Field(examples=["no model 'x' is served"])


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": OipError, "description": "What went wrong"}
    for status in (400, 401, 403, 404, 409, 410, 413, 415, 422, 429, 500, 503, 504)
}


class Live(BaseModel):
    """Liveness of the server."""

    live: bool = Field(examples=[True])


class Ready(BaseModel):
    """Readiness."""

    ready: bool = Field(examples=[True])


class ReadyModel(Ready):
    """Readiness of a model."""

    name: _Name


class ServerMetadata(BaseModel):
    """Name, version and extensions of the server."""

    name: str = Field(examples=["millrace"])
    version: str = Field(examples=[VERSION])
    extensions: list[str] = Field(examples=[["binary_tensor_data"]])


class TensorMetadata(BaseModel):
    """Declared tensor."""

    name: str = Field(examples=["INPUT0"])
    datatype: str = Field(json_schema_extra=_DATATYPE, examples=["INT32"])
    shape: list[int] = Field(
        description="-1 is any size; the first dimension counts rows", examples=[[-1, 16]]
    )


class ModelMetadata(BaseModel):
    """Model and its tensors."""

    name: _Name
    versions: list[str] = Field(examples=[["1"]])
    platform: str = Field(examples=["millrace_tensors"])
    inputs: list[TensorMetadata] = Field(description="empty: this protocol can't call it")
    outputs: list[TensorMetadata]


class TensorConfig(BaseModel):
    """Declared tensor, in Triton's model configuration."""

    name: str = Field(examples=["INPUT0"])
    data_type: str = Field(examples=["TYPE_INT32"])
    dims: list[int] = Field(description="shape without rows", examples=[[16]])


class ModelConfig(BaseModel):
    """Triton's model configuration."""

    name: _Name
    platform: str = Field(examples=[""])
    backend: str = Field(examples=["millrace_tensors"])
    max_batch_size: int = Field(description="rows of one request", examples=[256])
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

    id: str = Field(default="", description="returned in the response", examples=["42"])
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="priority (0: default, 1: interactive, 2: standard, more: bulk), timeout (in "
        "microseconds), binary_data_output",
    )
    inputs: list[RequestInput] = Field(min_length=1, examples=[_INPUTS])
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

    model_name: _Name
    model_version: str = Field(examples=["1"])
    id: str = Field(description="id of the request; without one, of the call", examples=["42"])
    parameters: dict[str, Any] = Field(examples=[{"total_ms": 4.2}])
    outputs: list[ResponseOutput] = Field(examples=[_OUTPUTS])
