"""What clients send and get, as pydantic models: they check the small parts of a request, and
they are what /openapi.json says. Items are checked one by one in `jobs.intake.validation`."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Field,
    Strict,
    StringConstraints,
)

NO_NUL = r"^[^\x00]*$"
_Key = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=NO_NUL)]
_Value = Annotated[str, StringConstraints(max_length=512, pattern=NO_NUL)]

Metadata = Annotated[dict[_Key, _Value], Field(max_length=16)]


def whole(value: Any) -> Any:
    """JSON knows one kind of number: 3.0 is whole."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WholeNumber = Annotated[int, BeforeValidator(whole), Strict()]


class Health(BaseModel):
    status: str


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
