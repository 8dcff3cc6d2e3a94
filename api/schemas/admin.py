"""Schemas for operators and admins: keys, tenants, limits, usage, audit log."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from api.schemas.common import NO_NUL, WholeNumber
from jobs import ids
from jobs.api_keys import MAX_OVERLAP_S, OVERLAP_S, TENANT
from jobs.identity import SCOPES, Role, Scope


class UsageSum(BaseModel):
    """Sums of usage."""

    succeeded: int
    failed: int
    units: dict[str, int] = Field(description="of successful work, by unit")
    device_ms: float = Field(description="of successful and failed work")
    amount: str = Field(description="exact decimal")


class UsageGroup(UsageSum):
    """Sums of one group, and the columns that it was grouped by."""

    tenant: str = ""
    model: str = ""
    version: str = ""
    job_class: str = Field(default="", alias="class")
    kind: Literal["items", "calls"] = "items"
    day: str = ""
    month: str = ""


class Usage(BaseModel):
    """Usage by group, and in total."""

    data: list[UsageGroup]
    total: UsageSum


class KeyRequest(BaseModel):
    """The body of POST /keys."""

    model_config = ConfigDict(extra="forbid")

    tenant: str = Field(pattern=TENANT, description="owner")
    name: str = Field(default="", max_length=200, pattern=NO_NUL, description="label")
    role: Role = "tenant"
    scopes: list[Scope] | None = Field(
        default=None,
        min_length=1,
        max_length=len(SCOPES),
        description="default: all scopes of the role",
    )
    expires_in_s: float | None = Field(
        default=None, gt=0, le=315_360_000, strict=True, description="default: never"
    )


class KeyOverlap(BaseModel):
    """The body of POST /keys/{key_id}/rotate."""

    model_config = ConfigDict(extra="forbid")

    overlap_s: float = Field(
        default=OVERLAP_S,
        ge=0,
        le=MAX_OVERLAP_S,
        strict=True,
        description="seconds for which the old key stays valid",
    )


class Key(BaseModel):
    """API key, without its secret."""

    id: str
    tenant: str
    name: str
    hint: str = Field(description="first characters of the key")
    role: Role
    scopes: list[Scope]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None
    replaced_by: str | None = Field(description="the key that it was rotated to")


class CreatedKey(Key):
    """API key with its secret."""

    key: str = Field(description="`mk_…`, shown once")


class KeyPage(BaseModel):
    """Page of keys."""

    data: list[Key]
    next: str | None = Field(description="`after` of the next page; null on the last one")


class TenantTerms(BaseModel):
    """Terms of a tenant."""

    model_config = ConfigDict(extra="forbid")

    weight: float = Field(
        default=1, ge=0.001, le=1000, strict=True, description="fair-share weight"
    )
    soft_cap: float | None = Field(
        default=None,
        ge=0,
        le=1e12,
        strict=True,
        description="monthly spend that sends a webhook; null: none",
    )
    hard_cap: float | None = Field(
        default=None,
        ge=0,
        le=1e12,
        strict=True,
        description="monthly spend that ends all work; null: none",
    )


class Tenant(TenantTerms):
    """Tenant and its terms."""

    tenant: str
    created_at: str
    erased_at: str | None


class TenantPage(BaseModel):
    """Page of tenants."""

    data: list[Tenant]
    next: str | None = Field(description="`after` of the next page; null on the last one")


class ErasureRemainder(BaseModel):
    """Rows that an erased tenant still has."""

    open: int
    jobs: int
    erasing: int = Field(description="jobs whose rows or payloads are being removed")
    items: int = Field(description="rows of those jobs")
    others: int = Field(description="rows of all other kinds")


class Erasure(BaseModel):
    """Progress of a tenant's erasure."""

    tenant: str
    erased_at: str = Field(description="when its keys were revoked")
    complete: bool
    left: ErasureRemainder


class AuditEntry(BaseModel):
    """One act."""

    id: int
    at: str
    tenant: str = Field(description="owner of the target")
    actor: str
    act: str
    target: str
    detail: dict[str, Any]
    request_id: str = Field(description="X-Request-Id of the response")


class AuditPage(BaseModel):
    """Page of the audit log."""

    data: list[AuditEntry]
    next: int | None = Field(description="`after` of the next page; null on the last one")


_PerSecond = Annotated[float, Field(ge=1e-6, le=1e9, strict=True)]
_AtMost = Annotated[WholeNumber, Field(gt=0, le=2**31 - 1)]
_AtMostBig = Annotated[WholeNumber, Field(gt=0, le=2**53)]


class LimitObject(BaseModel):
    """Limits of a tenant, one of its keys, or one model; null means unlimited."""

    model_config = ConfigDict(extra="forbid")

    model: str = Field(
        default="", max_length=200, pattern=r"^[A-Za-z0-9._-]*$",
        description="one model; empty: all models together",
    )  # fmt: skip
    key: str = Field(
        default="", pattern=rf"^(key_{ids.DIGITS})?$",
        description="one key; empty: all keys together",
    )  # fmt: skip
    requests_per_s: _PerSecond | None = Field(
        default=None, description="calls; without a model also submissions of jobs"
    )
    tokens_per_s: _PerSecond | None = Field(
        default=None, description="input of calls, in the unit of their model"
    )
    calls_in_flight: _AtMost | None = Field(default=None, description="concurrent calls")
    queued_items: _AtMostBig | None = Field(
        default=None, description="items without a result, over all jobs"
    )
    stored_bytes: _AtMostBig | None = Field(
        default=None, description="inputs of all jobs, and outputs of ended ones"
    )
    job_items: _AtMost | None = Field(default=None, description="items of one job")


class LimitList(BaseModel):
    """All limits of a tenant."""

    model_config = ConfigDict(extra="forbid")

    data: list[LimitObject] = Field(max_length=1000)
