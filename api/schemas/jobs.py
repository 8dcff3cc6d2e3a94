"""Schemas of jobs and items: requests and state."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from api.schemas.common import NO_NUL, Metadata, WholeNumber
from api.schemas.fleet import Finding
from api.schemas.webhooks import Webhook
from jobs import ids
from jobs.states import JobClass, JobState, Outcome

_Url = Annotated[str, StringConstraints(max_length=2000, pattern="^s3://")]
_Compression = Literal["none", "gzip"]
_ONE_OF_INPUT: Any = {"oneOf": [{"required": ["url"]}, {"required": ["file"]}]}
_ONE_OF_OUTPUT: Any = {"oneOf": [{"required": ["url"]}, {"required": ["files"]}]}


class JobInput(BaseModel):
    """Source of a job's items; `url` or `file`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_ONE_OF_INPUT)

    url: _Url = Field(default="", description="s3://bucket/key that the platform may read")
    file: str = Field(default="", pattern=ids.pattern("file"), description="file_… of your tenant")
    format: Literal["jsonl", "csv", "parquet"] | None = Field(
        default=None, description="default: by the name's suffix, else jsonl"
    )
    compression: _Compression | None = Field(default=None, description="default: gzip for .gz")

    @model_validator(mode="after")
    def _one(self) -> "JobInput":
        if bool(self.url) == bool(self.file):
            raise ValueError("name a url or a file, one of them")
        return self


class FilesOutput(BaseModel):
    """Results written to files of the tenant."""

    model_config = ConfigDict(extra="forbid")

    expires_in_s: float | None = Field(
        default=None, gt=0, le=315_360_000, strict=True, description="default: never"
    )


class Encryption(BaseModel):
    """Encryption at rest, by S3."""

    model_config = ConfigDict(extra="forbid")

    sse: Literal["AES256", "aws:kms"]
    kms_key: str | None = Field(
        default=None, max_length=2048, pattern=NO_NUL, description="key id, with aws:kms"
    )


class JobOutput(BaseModel):
    """Destination of a job's results when it ends; `url` or `files`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_ONE_OF_OUTPUT)

    url: _Url = Field(
        default="", description="s3://bucket/prefix/ below which a folder of the job is written"
    )
    files: FilesOutput | None = Field(
        default=None, description="written to files of your tenant, file_…"
    )
    format: Literal["jsonl", "parquet"] = "jsonl"
    compression: _Compression = "none"
    part_items: Annotated[WholeNumber, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None,
        description="items of one object, with a url; default: all; at most 1,000 objects",
    )
    encryption: Encryption | None = Field(
        default=None, description="encryption at rest, with a url"
    )

    @model_validator(mode="after")
    def _one(self) -> "JobOutput":
        if bool(self.url) == bool(self.files):
            raise ValueError("name a url or files, one of them")
        if self.files and (self.part_items or self.encryption):
            raise ValueError("part_items and encryption are for a url")
        if self.encryption and self.encryption.kms_key and self.encryption.sse != "aws:kms":
            raise ValueError("a kms_key is for aws:kms")
        return self


class JobRequest(BaseModel):
    """Job without its items."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1, max_length=200, description="name, or name@version")
    params: dict[str, Any] = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)
    job_class: JobClass = Field(default="standard", alias="class")
    priority: WholeNumber = Field(default=0, ge=-100, le=100)
    expires_in_s: float | None = Field(default=86_400, gt=0, le=315_360_000, strict=True)
    on_invalid: str = Field(default="reject", pattern="^(reject|fail_item)$")
    webhook: Webhook | None = None
    output: JobOutput | None = Field(
        default=None, description="where results are written, besides GET …/results"
    )

    @property
    def webhook_url(self) -> str | None:
        """Address that is told when the job has ended."""
        return self.webhook.url if self.webhook else None


class Item(BaseModel):
    """One item."""

    model_config = ConfigDict(extra="forbid")

    custom_id: str | None = Field(default=None, min_length=1, max_length=512)
    input: Any
    params: dict[str, Any] | None = None


class JobWithItems(JobRequest):
    """The JSON body of POST /jobs; with `items`, or with the `input` that they are read from."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"oneOf": [{"required": ["items"]}, {"required": ["input"]}]},
    )

    items: list[Item | str] = Field(default_factory=list, min_length=1)
    input: JobInput = Field(default_factory=JobInput)


class Counts(BaseModel):
    """Items by state."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int


class Progress(BaseModel):
    """Rate and remaining time of a job."""

    items_per_s: float | None
    eta_s: list[float] | None = Field(description="remaining seconds: lower and upper estimate")


class InputState(BaseModel):
    """Source of a job's items."""

    url: str = ""
    file: str = ""
    format: str = "jsonl"
    compression: str = "none"
    last_error: str | None = Field(description="why they could not be read yet")


class ManifestPart(BaseModel):
    """One file or object with results."""

    part: Literal["results", "errors"] = Field(description="kind of lines")
    items: int
    bytes: int
    sha256: str = Field(description="hexadecimal")
    file: str = ""
    url: str = ""


class Manifest(BaseModel):
    """Written results."""

    job: str
    generation: int
    format: str
    compression: str
    counts: dict[str, int]
    usage: dict[str, int] = Field(default_factory=dict, description="of successful items")
    parts: list[ManifestPart]


class OutputState(BaseModel):
    """Destination of a job's results, and progress of the export."""

    url: str = ""
    files: FilesOutput | None = None
    format: str = "jsonl"
    compression: str = "none"
    part_items: int | None = None
    encryption: Encryption | None = None
    state: Literal["pending", "writing", "complete", "failed"]
    manifest: Manifest | None
    error: dict[str, Any] | None = Field(description="why the export failed for good")
    last_error: str | None = Field(description="why it has not succeeded yet")


class Job(BaseModel):
    """The job object."""

    id: str
    model: str
    version: str
    state: JobState
    job_class: JobClass = Field(alias="class")
    priority: int
    params: dict[str, Any]
    metadata: dict[str, str]
    generation: int
    counts: Counts
    created_at: str
    started_at: str | None
    finished_at: str | None
    expires_at: str | None
    progress: Progress
    error: dict[str, Any] | None
    input: InputState | None
    output: OutputState | None


class JobPage(BaseModel):
    """Page of jobs."""

    data: list[Job]
    next: str | None = Field(description="`after` of the next page; null on the last one")


class ItemTiming(BaseModel):
    """Times of an item, in milliseconds; null: not reached yet, or unknown."""

    waiting_ms: float | None = Field(description="until a worker claimed its slice")
    preprocess_ms: float | None = Field(description="until it was in its lane")
    queue_ms: float | None = Field(description="until its launch was closed")
    batch_ms: float | None = Field(description="until the device had it")
    engine_ms: float | None = Field(description="launch on the device")
    record_ms: float | None = Field(description="until its slice was recorded")
    total_ms: float | None
    wait_ms: float | None = Field(description="queue_ms and batch_ms together")


class ItemState(BaseModel):
    """One item: its input, its outcome, its launch, and where its time went."""

    seq: int
    custom_id: str | None
    input: Any
    params: dict[str, Any]
    state: str
    outcome: Outcome | None
    output: Any
    error: dict[str, Any] | None
    usage: dict[str, int] | None
    attempts: int
    deliveries: int
    timing: ItemTiming
    launch: dict[str, Any] | None = Field(
        description="worker, start and time; operators see the whole launch"
    )
    why: list[Finding]
