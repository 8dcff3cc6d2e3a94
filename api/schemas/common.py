"""Types and schemas that resources share.

Schemas check requests without their items (`jobs.intake.validation` checks those one by one), and
describe both in /openapi.json.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, Strict, StringConstraints

NO_NUL = r"^[^\x00]*$"
_Key = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NO_NUL)]
_Value = Annotated[str, StringConstraints(max_length=512, pattern=NO_NUL)]

Metadata = Annotated[dict[_Key, _Value], Field(max_length=16)]


def whole(value: Any) -> Any:
    """Converts 3.0 to 3: JSON has one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(whole), Strict()]


class Health(BaseModel):
    """Result of a health check."""

    status: str


class FaultObject(BaseModel):
    """One problem in a request, and where it is."""

    loc: list[str | int]
    line: int | None = None
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

    type: str
    title: str
    status: int
    detail: str
    code: str
    retryable: bool
    request_id: str
    call_id: str | None = Field(
        default=None, description="id of the call, for GET /calls/{call_id}"
    )
    errors: list[FaultObject] | None = None
    limit: LimitReached | None = None
