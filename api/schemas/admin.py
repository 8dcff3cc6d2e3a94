"""Schemas for operators and admins: keys, tenants, limits, usage, the audit log."""

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
)

from api.schemas.common import NO_NUL, WholeNumber
from jobs import ids
from jobs.api_keys import MAX_OVERLAP_S, OVERLAP_S, TENANT
from jobs.identity import SCOPES, Role, Scope


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


class CreatedKey(Key):
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


class ErasureRemainder(BaseModel):
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
    left: ErasureRemainder


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


_PerSecond = Annotated[float, Field(ge=1e-6, le=1e9, strict=True)]


_AtMost = Annotated[WholeNumber, Field(gt=0, le=2**31 - 1)]


_AtMostBig = Annotated[WholeNumber, Field(gt=0, le=2**53)]


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
