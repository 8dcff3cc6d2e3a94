"""Schemas of OpenAI's files, models and batches. Optional fields are left out where they are
absent: OpenAI's types know no null."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.common import Metadata
from jobs.dialects.openai import ENDPOINTS

PURPOSES = ("assistants", "batch", "fine-tune", "vision", "user_data", "evals")
_HOUR_S, _MONTH_S = 3600, 30 * 86_400


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
    for status in (400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 500, 503, 504)
}


def _shown(example: Any) -> ConfigDict:
    """Returns a model configuration with an example."""
    return ConfigDict(json_schema_extra={"example": example})


def _listed(example: Any) -> ConfigDict:
    page = {"first_id": example["id"], "last_id": example["id"], "has_more": False}
    return _shown({"object": "list", "data": [example], **page})


_FILE = {
    "id": "file_01ksqmbjqef9pbsjj5v8v5anmb",
    "object": "file",
    "bytes": 1170,
    "created_at": 1789200000,
    "expires_at": 1791792000,
    "filename": "requests.jsonl",
    "purpose": "batch",
    "status": "processed",
}
_MODEL = {"id": "minilm", "object": "model", "created": 0, "owned_by": "millrace"}
_BATCH = {
    "id": "batch_01ksqmbjqef9pbsjj5v8v5anmb",
    "object": "batch",
    "endpoint": "/v1/embeddings",
    "model": "minilm",
    "input_file_id": "file_01ksqmbjqef9pbsjj5v8v5anmb",
    "completion_window": "24h",
    "status": "in_progress",
    "created_at": 1789200000,
    "in_progress_at": 1789200003,
    "expires_at": 1789286400,
    "request_counts": {"total": 1000, "completed": 400, "failed": 0},
    "metadata": {"kind": "nightly"},
}


class ExpiresAfter(BaseModel):
    """Lifetime of a file, from its creation."""

    model_config = ConfigDict(extra="forbid")

    anchor: Literal["created_at"]
    seconds: int = Field(ge=_HOUR_S, le=_MONTH_S)


class File(BaseModel):
    """Uploaded file."""

    model_config = _shown(_FILE)

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


class FileList(BaseModel):
    """Page of files."""

    model_config = _listed(_FILE)

    object: Literal["list"] = "list"
    data: list[File]
    first_id: str
    last_id: str
    has_more: bool


class FileDeleted(BaseModel):
    """Deleted file."""

    model_config = _shown({"id": _FILE["id"], "object": "file", "deleted": True})

    id: str
    object: Literal["file"] = "file"
    deleted: bool


class OpenAIModel(BaseModel):
    """Model."""

    model_config = _shown(_MODEL)

    id: str
    object: Literal["model"] = "model"
    created: int = Field(description="0: the models file has no date")
    owned_by: str


class OpenAIModelList(BaseModel):
    """All models."""

    model_config = _shown({"object": "list", "data": [_MODEL]})

    object: Literal["list"] = "list"
    data: list[OpenAIModel]


class BatchRequest(BaseModel):
    """The body of POST /v1/batches."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "input_file_id": "file_01ksqmbjqef9pbsjj5v8v5anmb",
                "endpoint": "/v1/embeddings",
                "completion_window": "24h",
            }
        },
    )

    input_file_id: str = Field(max_length=200, description="of a file with the purpose `batch`")
    endpoint: str = Field(description=f"endpoint of its lines: {' or '.join(ENDPOINTS)}")
    completion_window: str = Field(
        max_length=40,
        description="a duration: `24h`, `90m`, `1h30m`, `7d`; items that are not done expire",
    )
    metadata: Metadata | None = None
    output_expires_after: ExpiresAfter | None = None


class RequestCounts(BaseModel):
    """Items of a batch."""

    total: int
    completed: int
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

    model_config = _shown(_BATCH)

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    model: str | None = None
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: Literal[
        "validating",
        "failed",
        "in_progress",
        "finalizing",
        "completed",
        "expired",
        "cancelling",
        "cancelled",
    ]
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int | None = None
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts
    usage: BatchUsage | None = None
    metadata: dict[str, str] | None = None


class BatchList(BaseModel):
    """Page of batches."""

    model_config = _listed(_BATCH)

    object: Literal["list"] = "list"
    data: list[Batch]
    first_id: str
    last_id: str
    has_more: bool
