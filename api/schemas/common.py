"""Types and schemas that resources share, with their examples.

Schemas check requests without their items (`jobs.intake.validation` checks those one by one), and
describe both in /openapi.json.
"""

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, Strict, StringConstraints

T = TypeVar("T")
NO_NUL = r"^[^\x00]*$"
_ID = "01kajf7q5rf0h8zq2m4w6y8a0b"
JOB_ID, KEY_ID, CALL_ID = f"job_{_ID}", f"key_{_ID}", f"call_{_ID}"  #: examples
TENANT, MODEL, VECTOR = "globex", "minilm", [0.0123, -0.0456, 0.0789]  #: examples
AT, NEXT_DAY = "2026-11-20T09:00:00.120000Z", "2026-11-21T09:00:00.120000Z"  #: examples

JobId = Annotated[str, Field(examples=[JOB_ID])]
KeyId = Annotated[str, Field(examples=[KEY_ID])]
CallId = Annotated[str, Field(examples=[CALL_ID])]
TenantName = Annotated[str, Field(examples=[TENANT])]
ModelName = Annotated[str, Field(examples=[MODEL])]
ModelVersion = Annotated[str, Field(examples=["1"])]
Unit = Annotated[str, Field(examples=["tokens"])]
Timestamp = Annotated[str, Field(examples=[AT])]
RequestId = Annotated[str, Field(examples=[f"req_{_ID}"])]
MessageId = Annotated[str, Field(examples=[f"msg_{_ID}"])]
MessageBatchId = Annotated[str, Field(examples=[f"msgbatch_{_ID}"])]
_Key = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NO_NUL)]
_Value = Annotated[str, StringConstraints(max_length=512, pattern=NO_NUL)]

Metadata = Annotated[dict[_Key, _Value], Field(max_length=16)]

_LABEL_KEY = r"[a-z0-9]([a-z0-9_.-]{0,61}[a-z0-9])?"
_LABEL_VALUE = r"[^\x00-\x1f\x7f-\x9f]{0,128}"
MAX_LABELS = 16
Labels = Annotated[
    dict[
        Annotated[str, StringConstraints(pattern=f"^{_LABEL_KEY}$")],
        Annotated[str, StringConstraints(pattern=f"^{_LABEL_VALUE}$")],
    ],
    Field(max_length=MAX_LABELS),
]
LABEL = f"^{_LABEL_KEY}:{_LABEL_VALUE}$"
Label = Annotated[str, StringConstraints(pattern=LABEL), Field(examples=["team:search"])]
"""A label in a query."""
MAX_NAME = 200
NO_CONTROLS = r"^[^\x00-\x1f\x7f-\x9f]*$"


def whole(value: Any) -> Any:
    """Converts 3.0 to 3: JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(whole), Strict()]


class Body(BaseModel):
    """Body of a request; a field that it doesn't have is refused."""

    model_config = ConfigDict(extra="forbid")


class Page(BaseModel, Generic[T]):
    """Page of objects, and the place of the next one."""

    data: list[T]
    next: str | None = Field(description="`after` of the next page; null on the last one")


class Health(BaseModel):
    """Result of a health check."""

    status: str = Field(examples=["ok"])


class ServerVersion(BaseModel):
    """Version of the server."""

    version: str = Field(examples=["0.2.0"])


class FaultObject(BaseModel):
    """One problem in a request, and where it is."""

    loc: list[str | int]
    line: int | None = Field(default=None, description="of the body, or of a file, from 1")
    row: int | None = Field(default=None, description="of a Parquet file, from 1")
    element: int | None = Field(default=None, description="of a list in a JSON file, from 0")
    file: str | None = Field(default=None, description="where items come from several")
    custom_id: str | None = Field(default=None, description="of the item")
    first: dict[str, Any] | None = Field(
        default=None, description="place of the first item with the same custom_id"
    )
    code: str
    message: str


class LimitReached(BaseModel):
    """Limit that a request would exceed."""

    name: str
    value: float
    of: Literal["tenant", "key"]
    model: str | None = Field(description="null: all models together")


class Problem(BaseModel):
    """RFC 9457 problem."""

    type: str = Field(examples=["https://millrace.dev/problems/not-found"])
    title: str = Field(examples=["Not found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=[f"there is no job {JOB_ID}"])
    code: str = Field(examples=["not_found"])
    retryable: bool
    request_id: RequestId
    call_id: str | None = Field(
        default=None, description="id of the call, for GET /calls/{call_id}"
    )
    errors: list[FaultObject] | None = None
    limit: LimitReached | None = None
