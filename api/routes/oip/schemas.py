"""What the Open Inference Protocol says, as pydantic models: for /openapi.json, which alone reads
the requests' (`wire.py` checks them)."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from jobs.tensors import DTYPES

_DATATYPE: dict[str, Any] = {"enum": list(DTYPES)}
_SIMPLE = [-1, 16]
_INPUTS: list[Any] = [
    {"name": name, "shape": [1, 16], "datatype": "INT32", "data": list(range(16))}
    for name in ("INPUT0", "INPUT1")
]


class OipError(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(json_schema_extra={"example": {"error": "no model 'x' is served"}})

    error: str


class Live(BaseModel):
    live: bool = Field(examples=[True])


class Ready(BaseModel):
    ready: bool = Field(examples=[True])


class ReadyModel(Ready):
    name: str = Field(examples=["simple"])


class ServerMetadata(BaseModel):
    name: str = Field(examples=["millrace"])
    version: str = Field(examples=["0.1.0"])
    extensions: list[str] = Field(examples=[["binary_tensor_data"]])


class TensorMetadata(BaseModel):
    """shape: -1 is any size; the first counts rows."""

    name: str = Field(examples=["INPUT0"])
    datatype: str = Field(json_schema_extra=_DATATYPE, examples=["INT32"])
    shape: list[int] = Field(examples=[_SIMPLE])


class ModelMetadata(BaseModel):
    name: str = Field(examples=["simple"])
    versions: list[str] = Field(examples=[["1"]])
    platform: str = Field(examples=["millrace_tensors"])
    inputs: list[TensorMetadata] = Field(description="none: it can't be asked by this protocol")
    outputs: list[TensorMetadata]


class TensorConfig(BaseModel):
    """dims: without the rows."""

    name: str = Field(examples=["INPUT0"])
    data_type: str = Field(examples=["TYPE_INT32"])
    dims: list[int] = Field(examples=[[16]])


class ModelConfig(BaseModel):
    """What Triton's model configuration calls it. max_batch_size: rows of one request."""

    name: str = Field(examples=["simple"])
    platform: str = Field(examples=[""])
    backend: str = Field(examples=["millrace_tensors"])
    max_batch_size: int = Field(examples=[256])
    input: list[TensorConfig]
    output: list[TensorConfig]
    dynamic_batching: dict[str, Any] = Field(examples=[{}])


class IndexEntry(BaseModel):
    name: str = Field(examples=["simple"])
    version: str = Field(examples=["1"])
    state: Literal["READY", "LOADING", "UNAVAILABLE"]
    reason: str = Field(examples=[""], description="why it can't be loaded somewhere")


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

    model_config = ConfigDict(json_schema_extra={"example": {"id": "42", "inputs": _INPUTS}})

    id: str = Field(default="", description="comes back in the answer")
    parameters: dict[str, Any] = Field(
        default_factory=dict,
        description="priority (0: the usual, 1: interactive, 2: standard, more: bulk), timeout (in "
        "microseconds), binary_data_output",
    )
    inputs: list[RequestInput] = Field(min_length=1)
    outputs: list[RequestOutput] = Field(default_factory=list, description="absent: all")


class ResponseOutput(BaseModel):
    name: str = Field(examples=["OUTPUT0"])
    datatype: str = Field(json_schema_extra=_DATATYPE, examples=["INT32"])
    shape: list[int] = Field(examples=[[1, 16]])
    parameters: dict[str, Any] = Field(default_factory=dict, examples=[{}])
    data: list[Any] | None = Field(default=None, examples=[list(range(16))])


class InferenceAnswer(BaseModel):
    """The answer of `infer`, or what it begins with. parameters: where its time went, in ms."""

    model_name: str = Field(examples=["simple"])
    model_version: str = Field(examples=["1"])
    id: str = Field(examples=["42"], description="the request's; without one, the call's")
    parameters: dict[str, Any] = Field(examples=[{"total_ms": 4.2}])
    outputs: list[ResponseOutput]
