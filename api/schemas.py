"""What clients send and get, as pydantic models: they check the small parts of a request, and
they are what /openapi.json says. Items are checked one by one in `jobs.items`."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
    StringConstraints,
    model_validator,
)

from jobs import ids
from jobs.explain.diagnosis import Code, Severity
from jobs.identity import SCOPES, Role, Scope
from jobs.keys import MAX_OVERLAP_S, OVERLAP_S, TENANT
from jobs.states import JobClass, JobState, Outcome

NO_NUL = r"^[^\x00]*$"
_Key = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NO_NUL)]
_Value = Annotated[str, StringConstraints(max_length=512, pattern=NO_NUL)]

Metadata = Annotated[dict[_Key, _Value], Field(max_length=16)]

MAX_CALL_TIMEOUT_MS = 600_000


def whole(value: Any) -> Any:
    """JSON knows one kind of number: 3.0 is whole."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_WholeNumber = Annotated[int, BeforeValidator(whole), Strict()]


class Webhook(BaseModel):
    model_config = ConfigDict(extra="forbid")

    url: str = Field(max_length=2000, description="https://…, told when the job has ended")


_Url = Annotated[str, StringConstraints(max_length=2000, pattern="^s3://")]
_Compression = Literal["none", "gzip"]
_ONE_OF_INPUT: Any = {"oneOf": [{"required": ["url"]}, {"required": ["file"]}]}
_ONE_OF_OUTPUT: Any = {"oneOf": [{"required": ["url"]}, {"required": ["files"]}]}


class JobInput(BaseModel):
    """Where a job's items are read from; `url` or `file`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_ONE_OF_INPUT)

    url: _Url = Field(default="", description="s3://bucket/key, which the platform may read")
    file: str = Field(default="", pattern=ids.pattern("file"), description="file_…, of yours")
    format: Literal["jsonl", "csv", "parquet"] | None = Field(
        default=None, description="absent: by its name, else jsonl"
    )
    compression: _Compression | None = Field(default=None, description="absent: gzip for .gz")

    @model_validator(mode="after")
    def _one(self) -> "JobInput":
        if bool(self.url) == bool(self.file):
            raise ValueError("name a url or a file, one of them")
        return self


class FilesOutput(BaseModel):
    model_config = ConfigDict(extra="forbid")

    expires_in_s: float | None = Field(
        default=None, gt=0, le=315_360_000, strict=True, description="absent: never"
    )


class Encryption(BaseModel):
    """At rest, by S3."""

    model_config = ConfigDict(extra="forbid")

    sse: Literal["AES256", "aws:kms"]
    kms_key: str | None = Field(
        default=None, max_length=2048, pattern=NO_NUL, description="with aws:kms: its id"
    )


class JobOutput(BaseModel):
    """What a job's results are written to when it ends; `url` or `files`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_ONE_OF_OUTPUT)

    url: _Url = Field(
        default="", description="s3://bucket/prefix/: written below it, in a folder of the job"
    )
    files: FilesOutput | None = Field(default=None, description="files of yours, file_…")
    format: Literal["jsonl", "parquet"] = "jsonl"
    compression: _Compression = "none"
    part_items: Annotated[_WholeNumber, Field(ge=1, le=2**31 - 1)] | None = Field(
        default=None, description="of one object, with a url; absent: all; of 1,000 objects at most"
    )
    encryption: Encryption | None = Field(default=None, description="with a url")

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
    """Everything of a job but its items."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(min_length=1, max_length=200, description="name, or name@version")
    params: dict[str, Any] = Field(default_factory=dict)
    metadata: Metadata = Field(default_factory=dict)
    job_class: JobClass = Field(default="standard", alias="class")
    priority: _WholeNumber = Field(default=0, ge=-100, le=100)
    expires_in_s: float | None = Field(default=86_400, gt=0, le=315_360_000, strict=True)
    on_invalid: str = Field(default="reject", pattern="^(reject|fail_item)$")
    webhook: Webhook | None = None
    output: JobOutput | None = Field(
        default=None, description="what the results are written to, beside GET …/results"
    )

    @property
    def webhook_url(self) -> str | None:
        return self.webhook.url if self.webhook else None


class Item(BaseModel):
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


class CallRequest(BaseModel):
    """The body of POST /infer."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        min_length=1,
        max_length=200,
        description="name@version; or a name: its newest version that a worker is ready for",
    )
    input: Any
    params: dict[str, Any] = Field(default_factory=dict)
    timeout_ms: _WholeNumber = Field(
        default=10_000, ge=1, le=MAX_CALL_TIMEOUT_MS, description="for the whole answer"
    )
    call_class: JobClass = Field(
        default="interactive",
        alias="class",
        description="under pressure `bulk` is refused first, then `standard`, where the model's "
        "entry allows it",
    )


class Counts(BaseModel):
    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int


class Progress(BaseModel):
    items_per_s: float | None
    eta_s: list[float] | None = Field(description="between so many seconds and so many")


class InputState(BaseModel):
    """Where a job's items come from. last_error: why they could not be read yet."""

    url: str = ""
    file: str = ""
    format: str = "jsonl"
    compression: str = "none"
    last_error: str | None


class ManifestPart(BaseModel):
    """A file, or an object. part: which kind of lines; sha256: in hexadecimal."""

    part: Literal["results", "errors"]
    items: int
    bytes: int
    sha256: str
    file: str = ""
    url: str = ""


class Manifest(BaseModel):
    """What was written."""

    job: str
    generation: int
    format: str
    compression: str
    counts: dict[str, int]
    usage: dict[str, int] = Field(default_factory=dict, description="of what succeeded")
    parts: list[ManifestPart]


class OutputState(BaseModel):
    """What the results are written to. error: why they were not, and won't be; last_error: why not
    yet."""

    url: str = ""
    files: FilesOutput | None = None
    format: str = "jsonl"
    compression: str = "none"
    part_items: int | None = None
    encryption: Encryption | None = None
    state: Literal["pending", "writing", "complete", "failed"]
    manifest: Manifest | None
    error: dict[str, Any] | None
    last_error: str | None


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
    data: list[Job]
    next: str | None = Field(description="`after` of the next page; null on the last one")


class Delivery(BaseModel):
    """A webhook of one end of a job. id: the `webhook-id` of all its tries."""

    id: str
    type: str
    generation: int | None = Field(description="of the job; null: it is of no job")
    url: str
    state: Literal["pending", "delivered", "failed", "disabled"]
    tries: int
    created_at: str
    delivered_at: str | None
    next_try_at: str | None
    last_status: int | None
    last_error: str | None


class DeliveryList(BaseModel):
    data: list[Delivery]


class Endpoint(BaseModel):
    """Where you are told what is of no job: `usage.threshold`."""

    model_config = ConfigDict(extra="forbid")

    url: str | None = Field(max_length=2000, pattern=NO_NUL, description="null: nowhere")


class EndpointState(Endpoint):
    deliveries: list[Delivery] = Field(description="the latest, of this and of earlier URLs")


class UsageSum(BaseModel):
    """units: of what succeeded, by their name; device_ms: of all; amount: exact, as a decimal."""

    succeeded: int
    failed: int
    units: dict[str, int]
    device_ms: float
    amount: str


class UsageGroup(UsageSum):
    """What it was asked by, and its sums."""

    tenant: str = ""
    model: str = ""
    version: str = ""
    job_class: str = Field(default="", alias="class")
    kind: Literal["items", "calls"] = "items"
    day: str = ""
    month: str = ""


class Usage(BaseModel):
    data: list[UsageGroup]
    total: UsageSum


class SigningSecret(BaseModel):
    """What webhooks are signed with."""

    secret: str | None = Field(description="`whsec_…`, shown once; null ever after")
    created_at: str
    previous_signs_until: str | None = Field(description="while a rotation lasts")


class KeyRequest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    tenant: str = Field(pattern=TENANT, description="whose it is")
    name: str = Field(default="", max_length=200, pattern=NO_NUL, description="to know it by")
    role: Role = "tenant"
    scopes: list[Scope] | None = Field(
        default=None, min_length=1, max_length=len(SCOPES), description="absent: all of the role"
    )
    expires_in_s: float | None = Field(
        default=None, gt=0, le=315_360_000, strict=True, description="absent: never"
    )


class KeyOverlap(BaseModel):
    model_config = ConfigDict(extra="forbid")

    overlap_s: float = Field(
        default=OVERLAP_S,
        ge=0,
        le=MAX_OVERLAP_S,
        strict=True,
        description="so long the key before it goes on",
    )


class Key(BaseModel):
    """An API key; hint: how it begins."""

    id: str
    tenant: str
    name: str
    hint: str
    role: Role
    scopes: list[Scope]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    replaced_by: str | None = Field(description="the key that it was rotated to")


class MadeKey(Key):
    key: str = Field(description="`mk_…`, shown this once")


class KeyPage(BaseModel):
    data: list[Key]
    next: str | None = Field(description="`after` of the next page; null on the last one")


class TenantTerms(BaseModel):
    """weight: of its share; caps: of a month's spend."""

    model_config = ConfigDict(extra="forbid")

    weight: float = Field(default=1, ge=0.001, le=1000, strict=True)
    soft_cap: float | None = Field(
        default=None, ge=0, le=1e12, strict=True, description="the webhook is told; null: none"
    )
    hard_cap: float | None = Field(
        default=None, ge=0, le=1e12, strict=True, description="and here it ends; null: never"
    )


class Tenant(TenantTerms):
    tenant: str
    created_at: str
    erased_at: str | None


class TenantPage(BaseModel):
    data: list[Tenant]
    next: str | None = Field(description="`after` of the next page; null on the last one")


class Leftover(BaseModel):
    """What an erased tenant still has. erasing: jobs whose rows (of so many items) or payloads are
    on their way out; others: rows of all other kinds."""

    open: int
    jobs: int
    erasing: int
    items: int
    others: int


class Erasure(BaseModel):
    tenant: str
    erased_at: str = Field(description="when its keys were revoked")
    complete: bool
    left: Leftover


class Finding(BaseModel):
    """One cause, in words and figures."""

    code: Code = Field(description="what it is; ops/docs/why.md has a line for each")
    severity: Severity
    about: str = Field(description="model:m@1, tenant:t, worker:12, database, job:job_…, …")
    words: str
    advice: str
    evidence: dict[str, float | str] = Field(description="the figures, in base units")


class Explanation(BaseModel):
    """What is the matter with something, the most severe first; nothing: it does what it should."""

    about: str
    diagnoses: list[Finding]


class EndedCall(BaseModel):
    """What is kept of a call that ended, and why it took so long or wasn't answered. Times are in
    milliseconds."""

    id: str
    tenant: str
    model: str
    version: str
    job_class: JobClass
    outcome: str = Field(description="succeeded, cancelled (its client left) or the error's code")
    ended_at: str
    target_ms: int
    timeout_ms: int
    size: int
    lane: str = Field(description="its parameters and its length bucket")
    timing: dict[str, float | int | str]
    needed_ms: float | None = Field(description="of one refused for its time: what was predicted")
    allowed_ms: float | None = Field(description="of one refused for its time: what was left")
    why: list[Finding]


class ItemTiming(BaseModel):
    """Where the time went, in milliseconds; null: it hasn't come to that, or nobody knows."""

    waiting_ms: float | None = Field(description="until a worker claimed its slice")
    preprocess_ms: float | None = Field(description="until it was in its lane")
    queue_ms: float | None = Field(description="until its launch was closed")
    batch_ms: float | None = Field(description="until the device had it")
    engine_ms: float | None = Field(description="its launch")
    record_ms: float | None = Field(description="until its slice was done and recorded")
    total_ms: float | None
    wait_ms: float | None = Field(description="queue_ms and batch_ms together")


class ItemState(BaseModel):
    """One item: its input, its end, the launch that it was in, and where its time went."""

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
        description="for tenants its worker, start and time; operators see who shared it"
    )
    why: list[Finding]


class Degraded(BaseModel):
    """What was done to a call in place of refusing it, as its model's entry allows."""

    truncated_to: int = Field(default=0, description="the input was cut to so many tokens")
    fallback_from: str = Field(default="", description="the version that was asked")


class CallAnswer(BaseModel):
    """The answer of POST /infer. Times are in milliseconds."""

    id: str
    model: str
    version: str = Field(description="of the model that answered")
    output: Any
    usage: dict[str, int]
    timing: dict[str, float | int | str] = Field(
        description="where the time went: gateway_ms, preprocess_ms, queue_ms, batch_ms, "
        "engine_ms and post_ms are total_ms together; and what it was launched with"
    )
    degraded: Degraded = Field(default_factory=Degraded, description="absent where nothing was")


class ModelState(BaseModel):
    """One version of a model. engine, target_ms, unit: null once it is declared no more; workers:
    in how many it is ready."""

    name: str
    version: str
    engine: str | None
    target_ms: int | None
    unit: str | None
    ready: bool
    workers: int
    states: dict[Literal["absent", "loading", "warming", "ready", "draining", "failed"], int] = (
        Field(description="in how many workers it stands how")
    )
    load_ms: float | None = Field(description="until it was warm, the longest; null: not known")
    error: str | None = Field(description="why it can't be loaded somewhere")


class ModelList(BaseModel):
    data: list[ModelState]


class WorkerModel(BaseModel):
    """A model in one worker. memory_mb, load_ms: null until they are known."""

    model: str
    state: Literal["absent", "loading", "warming", "ready", "draining", "failed"]
    memory_mb: float | None
    load_ms: float | None
    error: str | None


class Worker(BaseModel):
    """One incarnation of a worker process. drain_asked: it is to take no more work; died: how it
    ended, where that was no goodbye."""

    id: int
    name: str
    pool: str
    device: str
    state: Literal["loading", "ready", "draining", "stopped", "lost"]
    drain_asked: bool
    died: Literal["killed", "crashed", "hung"] | None
    models: list[WorkerModel]
    started_at: str
    heartbeat_at: str
    ended_at: str | None


class WorkerList(BaseModel):
    data: list[Worker]


class Health(BaseModel):
    status: str


class AuditEntry(BaseModel):
    """One act. tenant: whose things it was done to; request_id: the X-Request-Id of the answer."""

    id: int
    at: str
    tenant: str
    actor: str
    act: str
    target: str
    detail: dict[str, Any]
    request_id: str


class AuditPage(BaseModel):
    data: list[AuditEntry]
    next: int | None = Field(description="`after` of the next page; null on the last one")


class FaultObject(BaseModel):
    loc: list[str | int]
    line: int | None = None
    code: str
    message: str


class LimitReached(BaseModel):
    """Which limit a request would go over: its name and value, whose it is, for which model."""

    name: str
    value: float
    of: Literal["tenant", "key"]
    model: str | None


class Problem(BaseModel):
    """RFC 9457."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    request_id: str
    call_id: str | None = Field(default=None, description="of a call: for GET /calls/{call_id}")
    errors: list[FaultObject] | None = None
    limit: LimitReached | None = None


_PerSecond = Annotated[float, Field(ge=1e-6, le=1e9, strict=True)]
_AtMost = Annotated[_WholeNumber, Field(gt=0, le=2**31 - 1)]
_AtMostBig = Annotated[_WholeNumber, Field(gt=0, le=2**53)]


class LimitObject(BaseModel):
    """What may be used at most; null: as much as one likes."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        default="", max_length=200, pattern=r"^[A-Za-z0-9._-]*$",
        description="for one model; empty: for all of them together",
    )  # fmt: skip
    key: str = Field(
        default="", pattern=rf"^(key_{ids.DIGITS})?$",
        description="for one key; empty: for all of them together",
    )  # fmt: skip
    requests_per_s: _PerSecond | None = Field(
        default=None, description="calls; without a model: and submissions of jobs"
    )
    tokens_per_s: _PerSecond | None = Field(
        default=None, description="of calls, in the unit of their model"
    )
    calls_in_flight: _AtMost | None = Field(default=None, description="at a time")
    queued_items: _AtMostBig | None = Field(
        default=None, description="without a result, over all jobs"
    )
    stored_bytes: _AtMostBig | None = Field(
        default=None, description="inputs of all jobs, and outputs of those that ended"
    )
    job_items: _AtMost | None = Field(default=None, description="of one job")


class LimitList(BaseModel):
    model_config = ConfigDict(extra="forbid")

    data: list[LimitObject] = Field(max_length=1000)
