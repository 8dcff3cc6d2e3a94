"""Schemas of jobs and items: requests and state."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from api.schemas.common import (
    AT,
    JOB_ID,
    MAX_NAME,
    NEXT_DAY,
    NO_CONTROLS,
    NO_NUL,
    VECTOR,
    Body,
    JobId,
    Labels,
    Metadata,
    ModelName,
    ModelVersion,
    Page,
    Timestamp,
    WholeNumber,
)
from api.schemas.fleet import Finding
from api.schemas.webhooks import Webhook
from jobs import ids
from jobs.states import JobClass, JobState, Outcome, Versioning

_Url = Annotated[str, StringConstraints(max_length=2000, pattern="^s3://")]
_Column = Annotated[str, StringConstraints(max_length=200, pattern=NO_NUL)]
_Compression = Literal["none", "gzip"]
_ONE_OF_INPUT: Any = {"oneOf": [{"required": [name]} for name in ("url", "urls", "file")]}
_ONE_OF_OUTPUT: Any = {"oneOf": [{"required": ["url"]}, {"required": ["files"]}]}

_ITEM = {"custom_id": "a-1", "input": "how do I parse JSON"}
_NAME, _LABELS = "Monday's reviews", {"team": "search"}
_WEBHOOK = {"url": "https://globex.example/millrace"}


class JobInput(Body):
    """Source of a job's items; `url`, `urls` or `file`."""

    model_config = ConfigDict(json_schema_extra=_ONE_OF_INPUT)

    url: _Url = Field(
        default="",
        description="s3://bucket/key that the platform may read, or a folder, s3://bucket/prefix/, "
        "whose objects are read by key",
        examples=["s3://bucket/items.jsonl"],
    )
    urls: list[_Url] = Field(
        default_factory=list, max_length=100, description="several, read in this order"
    )
    file: str = Field(default="", pattern=ids.pattern("file"), description="file_… of your tenant")
    format: Literal["jsonl", "json", "csv", "parquet", "text"] | None = Field(
        default=None, description="default: by the name's suffix, csv or parquet, else jsonl"
    )
    column: _Column = Field(
        default="", description="column of the inputs; default: the only one beside `custom_id` "
        "and `params`",
    )  # fmt: skip
    id_column: _Column = Field(default="", description="column of the custom_ids")
    compression: _Compression | None = Field(default=None, description="default: gzip for .gz")

    @model_validator(mode="after")
    def _one(self) -> "JobInput":
        if sum(map(bool, (self.url, self.urls, self.file))) != 1:
            raise ValueError("name a url, urls or a file, one of them")
        if (self.column or self.id_column) and self.format == "text":
            raise ValueError("texts have no columns")
        return self


class FilesOutput(Body):
    """Results written to files of the tenant."""

    expires_in_s: float | None = Field(
        default=None, gt=0, le=315_360_000, strict=True, description="default: never"
    )


class Encryption(Body):
    """Encryption at rest, by S3."""

    sse: Literal["AES256", "aws:kms"]
    kms_key: str | None = Field(
        default=None, max_length=2048, pattern=NO_NUL, description="key id, with aws:kms"
    )


class JobOutput(Body):
    """Destination of a job's results when it ends; `url` or `files`."""

    model_config = ConfigDict(json_schema_extra=_ONE_OF_OUTPUT)

    url: _Url = Field(
        default="",
        description="s3://bucket/prefix/ below which a folder of the job is written",
        examples=["s3://bucket/results/"],
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


class JobRequest(Body):
    """Job without its items."""

    model: ModelName = Field(min_length=1, max_length=200, description="name, or name@version")
    params: dict[str, Any] = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict, examples=[{"batch": "monday"}])
    name: str | None = Field(
        default=None, min_length=1, max_length=MAX_NAME, pattern=NO_CONTROLS,
        description="to find the job by", examples=[_NAME],
    )  # fmt: skip
    labels: Labels = Field(
        default_factory=dict, description="pairs to find the job by", examples=[_LABELS]
    )
    job_class: JobClass = Field(default="standard", alias="class")
    priority: WholeNumber = Field(default=0, ge=-100, le=100)
    expires_in_s: float | None = Field(default=86_400, gt=0, le=315_360_000, strict=True)
    on_invalid: str = Field(default="reject", pattern="^(reject|fail_item)$")
    versioning: Versioning = Field(
        default="pinned",
        description="`routed`: each slice has a version by the routes and the rollout of the model",
    )
    webhook: Webhook | None = Field(default=None, examples=[_WEBHOOK])
    output: JobOutput | None = Field(
        default=None, description="where results are written, besides GET …/results"
    )

    @property
    def webhook_url(self) -> str | None:
        """Address that is told when the job has ended."""
        return self.webhook.url if self.webhook else None


class Item(Body):
    """One item."""

    custom_id: str | None = Field(default=None, min_length=1, max_length=512)
    input: Any
    params: dict[str, Any] | None = None


class JobWithItems(JobRequest):
    """The JSON body of POST /jobs; with `items`, or with the `input` that they are read from."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["items"]}, {"required": ["input"]}]}
    )

    items: list[Item | str] = Field(
        default_factory=list, min_length=1, examples=[[_ITEM, "a text alone is an item too"]]
    )
    input: JobInput = Field(default_factory=JobInput)


class ResubmitRequest(JobRequest):
    """Terms of a new job of the items of another one; those that are absent are that job's, its
    `output` aside."""

    model: ModelName = Field(
        default="", min_length=1, max_length=200, description="default: the version of that job"
    )
    items: Literal["all", "unsuccessful"] = Field(
        default="all", description="`unsuccessful`: those that did not succeed, of an ended job"
    )


class Counts(BaseModel):
    """Items by state."""

    total: int = Field(examples=[1000])
    pending: int = Field(examples=[300])
    running: int = Field(examples=[100])
    succeeded: int = Field(examples=[598])
    failed: int = Field(examples=[2])
    cancelled: int
    expired: int


class Progress(BaseModel):
    """Rate and remaining time of a job."""

    items_per_s: float | None = Field(examples=[210.5])
    eta_s: list[float] | None = Field(
        description="remaining seconds: lower and upper estimate", examples=[[1.6, 2.4]]
    )


class InputState(BaseModel):
    """Source of a job's items."""

    url: str = ""
    urls: list[str] = Field(default_factory=list)
    file: str = ""
    format: str | None = Field(default=None, description="null: each object's, by its name")
    compression: str | None = Field(default=None, description="null: likewise")
    column: str = ""
    id_column: str = ""
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
    tokens: dict[str, int] | None = Field(
        default=None,
        description="of successful items: `input`, `cached` (of those) and `output`, where any "
        "were counted",
    )
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

    id: JobId
    name: str | None = Field(examples=[_NAME])
    model: ModelName
    version: ModelVersion = Field(description="that it was accepted for")
    versioning: Versioning
    state: JobState = Field(examples=["running"])
    job_class: JobClass = Field(alias="class", examples=["standard"])
    priority: int
    params: dict[str, Any]
    metadata: dict[str, str] = Field(examples=[{"batch": "monday"}])
    labels: dict[str, str] = Field(examples=[_LABELS])
    generation: int = Field(examples=[1])
    counts: Counts
    truncated: int = Field(
        description="items that succeeded with a text that was cut: their `usage.truncated` is the "
        "number of its tokens that were left out",
        examples=[0],
    )
    created_at: Timestamp
    started_at: str | None = Field(examples=["2026-11-20T09:00:00.250000Z"])
    finished_at: str | None
    expires_at: str | None = Field(examples=[NEXT_DAY])
    progress: Progress
    error: dict[str, Any] | None
    input: InputState | None
    output: OutputState | None


class JobPage(Page[Job]):
    """Page of jobs."""


class ItemTiming(BaseModel):
    """Times of an item, in milliseconds; null: not reached yet, or unknown."""

    waiting_ms: float | None = Field(
        description="until a worker claimed its slice", examples=[130.4]
    )
    preprocess_ms: float | None = Field(description="until it was in its lane", examples=[28.9])
    queue_ms: float | None = Field(description="until its launch was closed", examples=[12.1])
    batch_ms: float | None = Field(description="until the device had it", examples=[0.4])
    engine_ms: float | None = Field(description="launch on the device", examples=[9.7])
    record_ms: float | None = Field(description="until its slice was recorded", examples=[212.5])
    total_ms: float | None = Field(examples=[394.0])
    wait_ms: float | None = Field(description="queue_ms and batch_ms together", examples=[12.5])


class ItemState(BaseModel):
    """One item: its input, its outcome, its launch, and where its time went."""

    seq: int
    custom_id: str | None = Field(examples=[_ITEM["custom_id"]])
    input: Any = Field(examples=[_ITEM["input"]])
    params: dict[str, Any]
    version: ModelVersion
    state: str = Field(examples=["succeeded"])
    outcome: Outcome | None = Field(examples=["succeeded"])
    output: Any = Field(examples=[VECTOR])
    error: dict[str, Any] | None = Field(
        description="code and message; `attempts`: earlier failures; `traceback`: frames of the "
        "model's own code, where it raised an exception that it didn't mean to",
        examples=[{"code": "engine_error", "message": "model.py:7: KeyError: 'x'"}],
    )
    usage: dict[str, int] | None = Field(examples=[{"tokens": 7}])
    attempts: int = Field(examples=[1])
    deliveries: int = Field(examples=[1])
    timing: ItemTiming
    launch: dict[str, Any] | None = Field(
        description="worker, start and time; operators see the whole launch",
        examples=[{"worker": 3, "engine_ms": 9.7, "started_at": AT}],
    )
    why: list[Finding] = Field(
        examples=[
            [
                {
                    "code": "recording",
                    "severity": "info",
                    "about": f"job:{JOB_ID}",
                    "words": "it spent 212 ms of 394 ms (54 %) for the rest of its slice to be "
                    "done and recorded together",
                    "advice": "smaller slices (limits.slice_items) are recorded sooner",
                    "evidence": {"seconds": 0.212, "total_s": 0.394},
                }
            ]
        ]
    )
