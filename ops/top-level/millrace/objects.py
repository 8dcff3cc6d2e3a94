"""Objects of the api: dictionaries whose fields are attributes, too.

They hold what the api sent, fields of later versions included: `job["state"]` is `job.state`, and
`json.dumps(job)` is the answer.
"""

from typing import Any, Literal

JobState = Literal[
    "validating", "queued", "running", "paused", "cancelling",
    "completed", "cancelled", "expired", "failed",
]  # fmt: skip
Outcome = Literal["succeeded", "failed", "cancelled", "expired"]

ENDED = frozenset({"completed", "cancelled", "expired", "failed"})
"""States that only `retry` leaves."""


class Object(dict[str, Any]):
    """JSON object."""

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            here = f"this {type(self).__name__} has no {name!r}, but {', '.join(self)}"
            raise AttributeError(here) from None
        return Object(value) if type(value) is dict else value


class Counts(Object):
    """Items of a job by state."""

    total: int
    pending: int
    running: int
    succeeded: int
    failed: int
    cancelled: int
    expired: int


class Progress(Object):
    """Pace of a job."""

    items_per_s: float | None
    eta_s: list[float] | None  #: lower and upper estimate of the seconds left


class Job(Object):
    """Job as it was when the api answered; times are in ISO 8601."""

    id: str
    name: str | None
    model: str
    version: str
    versioning: str
    state: JobState
    priority: int
    params: dict[str, Any]
    metadata: dict[str, str]
    labels: dict[str, str]
    generation: int  #: 1; one more after each retry
    counts: Counts
    truncated: int  #: items that succeeded with a text that was cut
    created_at: str
    started_at: str | None
    finished_at: str | None
    expires_at: str | None
    progress: Progress
    error: dict[str, Any] | None
    input: dict[str, Any] | None
    output: dict[str, Any] | None

    @property
    def job_class(self) -> str:
        """Scheduling class, the field `class`."""
        return str(self["class"])

    @property
    def has_ended(self) -> bool:
        """True once all results are there."""
        return self["state"] in ENDED

    @property
    def is_writing(self) -> bool:
        """True while the platform writes the results to files or S3."""
        return (self.get("output") or {}).get("state") in ("pending", "writing")


class Result(Object):
    """Result of an item."""

    seq: int  #: position of the item in its job, from 0
    custom_id: str | None
    outcome: Outcome
    output: Any  #: None unless it succeeded
    error: dict[str, Any] | None  #: code and message unless it succeeded
    usage: dict[str, int]  #: `truncated`: tokens of its text that were left out, if any were
    attempts: int

    @property
    def ok(self) -> bool:
        """True if the item succeeded."""
        return bool(self["outcome"] == "succeeded")


class Call(Object):
    """Answer of a call."""

    id: str
    model: str
    version: str
    output: Any
    usage: dict[str, int]
    timing: dict[str, Any]  #: where the time went, ms


class Chat(Object):
    """Answer to a conversation, as OpenAI's chat completion."""

    id: str
    model: str
    choices: list[dict[str, Any]]
    usage: dict[str, Any]

    @property
    def text(self) -> str:
        """Text of the first choice."""
        return str(self["choices"][0]["message"].get("content") or "")


class ChatChunk(Object):
    """Piece of an answer, as OpenAI's chat completion chunk."""

    id: str
    model: str
    choices: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """Text that this piece adds to the first choice."""
        choices = self.get("choices") or [{}]
        return str(choices[0].get("delta", {}).get("content") or "")


class Model(Object):
    """Version of a model, and its state in the workers."""

    name: str
    version: str
    states: dict[str, int]
    error: str | None
