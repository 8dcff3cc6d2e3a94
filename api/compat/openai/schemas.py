"""Schemas of OpenAI's files, models and batches. Optional fields are left out where they are
absent: OpenAI's types know no null."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from api.schemas.common import Body, Metadata, ModelName
from jobs.dialects.openai_lines import ENDPOINTS
from jobs.states import Versioning

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
_HOUR_S, _MONTH_S = 3600, 30 * 86_400
_ID = "01ksqmbjqef9pbsjj5v8v5anmb"  # of examples
_FileId = Annotated[str, Field(examples=[f"file_{_ID}"])]
_BatchId = Annotated[str, Field(examples=[f"batch_{_ID}"])]
_UnixTime = Annotated[int, Field(examples=[1_789_200_000])]


class Error(BaseModel):
    """Error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorResponse(BaseModel):
    """Response with an error."""

    error: Error


ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorResponse, "description": "What went wrong, as OpenAI words it"}
    for status in (400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 503, 504, 507)
}


class ExpiresAfter(Body):
    """Lifetime of a file, from its creation."""

    anchor: Literal["created_at"]
    seconds: int = Field(ge=_HOUR_S, le=_MONTH_S, examples=[86_400])


class File(BaseModel):
    """Uploaded file."""

    id: _FileId
    object: Literal["file"] = "file"
    bytes: int = Field(examples=[1170])
    created_at: _UnixTime
    expires_at: int | None = Field(default=None, examples=[1_791_792_000])
    filename: str = Field(examples=["requests.jsonl"])
    purpose: str = Field(examples=["batch"])
    status: Literal["processed"] = "processed"


class FileList(BaseModel):
    """Page of files."""

    object: Literal["list"] = "list"
    data: list[File]
    first_id: _FileId
    last_id: _FileId
    has_more: bool


class FileDeleted(BaseModel):
    """Deleted file."""

    id: _FileId
    object: Literal["file"] = "file"
    deleted: bool = Field(examples=[True])


class OpenAIModel(BaseModel):
    """Model."""

    id: ModelName
    object: Literal["model"] = "model"
    created: int = Field(
        description="s since 1970 at which the version was registered, or its models file was "
        "written last",
        examples=[1_763_629_200],
    )
    owned_by: str = Field(examples=["millrace"])
    root: str = Field(
        default="", description="vLLM's field: the model's name", examples=["smollm2"]
    )
    max_model_len: int = Field(
        default=0,
        description="vLLM's field: most tokens of a sequence, prompt and output; left out where it "
        "isn't known",
        examples=[4096],
    )


class OpenAIModelList(BaseModel):
    """All models."""

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class BatchRequest(Body):
    """The body of POST /v1/batches."""

    input_file_id: _FileId = Field(
        max_length=200,
        pattern=r"^[!-~]+$",
        description="of a file with the purpose `batch`; the batch fails where it isn't there",
    )
    endpoint: str = Field(
        description=f"endpoint of its lines: {' or '.join(ENDPOINTS)}", examples=["/v1/embeddings"]
    )
    completion_window: str = Field(
        max_length=40,
        examples=["24h"],
        description="a duration: `24h`, `90m`, `1h30m`, `7d`; items that are not done expire",
    )
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None
    on_invalid: Literal["reject", "fail_item"] = Field(
        default="reject",
        description="of a line with a fault: the batch fails, or the line alone, with an entry of "
        "the error file",
    )
    versioning: Versioning = Field(
        default="pinned",
        description="`routed`: each slice has a version by the routes and the rollout of the model",
    )


class RequestCounts(BaseModel):
    """Items of a batch."""

    total: int = Field(examples=[1000])
    completed: int = Field(examples=[400])
    failed: int


class InputDetails(BaseModel):
    """Details of input tokens."""

    cached_tokens: int


class OutputDetails(BaseModel):
    """Details of output tokens."""

    reasoning_tokens: int


class BatchUsage(BaseModel):
    """Tokens of successful items."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class BatchError(BaseModel):
    """Fault in the input."""

    code: str
    message: str
    param: str | None
    line: int | None


class BatchErrors(BaseModel):
    """Faults in the input."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class Batch(BaseModel):
    """Job, in OpenAI's form."""

    id: _BatchId
    object: Literal["batch"] = "batch"
    endpoint: str = Field(examples=["/v1/embeddings"])
    model: str | None = Field(default=None, examples=["minilm"])
    errors: BatchErrors | None = None
    input_file_id: _FileId
    completion_window: str = Field(examples=["24h"])
    status: Literal[
        "validating",
        "failed",
        "in_progress",
        "finalizing",
        "completed",
        "expired",
        "cancelling",
        "cancelled",
    ] = Field(examples=["in_progress"])
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: _UnixTime
    in_progress_at: int | None = Field(default=None, examples=[1_789_200_003])
    expires_at: int | None = Field(default=None, examples=[1_789_286_400])
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts
    usage: BatchUsage | None = None
    metadata: dict[str, str] | None = Field(default=None, examples=[{"kind": "nightly"}])


class BatchList(BaseModel):
    """Page of batches."""

    object: Literal["list"] = "list"
    data: list[Batch]
    first_id: _BatchId
    last_id: _BatchId
    has_more: bool
