"""Schemas for operators and admins: keys, tenants, limits, usage, audit log."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from api.schemas.common import (
    AT,
    JOB_ID,
    MODEL,
    NO_NUL,
    Body,
    KeyId,
    Page,
    RequestId,
    TenantName,
    Timestamp,
    WholeNumber,
)
from jobs import ids
from jobs.api_keys import MAX_OVERLAP_S, OVERLAP_S, TENANT
from jobs.identity import SCOPES, Role, Scope

_Amount = Annotated[float, Field(ge=0, le=1e12, strict=True)]


class TokenSum(BaseModel):
    """Tokens of models that generate, of successful, failed and cancelled work."""

    input: int = Field(description="of prompts, cached ones included", examples=[5120])
    cached: int = Field(description="of those, found in the cache", examples=[1024])
    output: int = Field(description="generated", examples=[2048])


class UsageSum(BaseModel):
    """Sums of usage."""

    succeeded: int = Field(examples=[998])
    failed: int = Field(examples=[2])
    units: dict[str, int] = Field(
        description="of successful work, by unit", examples=[{"tokens": 18340}]
    )
    device_ms: float = Field(description="of successful and failed work", examples=[4750.2])
    tokens: TokenSum
    amount: str = Field(description="exact decimal", examples=["0.4668"])


class DeviceCost(BaseModel):
    """Cost in the unit of `MILLRACE_PRICE`, at the lowest and the highest price of a device."""

    least: float = Field(examples=[3.299])
    most: float = Field(examples=[3.299])


class UsageGroup(UsageSum):
    """Sums of one group, and the columns that it was grouped by."""

    tenant: str = ""
    model: str = Field(default="", examples=[MODEL])
    version: str = ""
    job_class: str = Field(default="", alias="class")
    kind: Literal["items", "calls"] = "items"
    day: str = Field(default="", examples=["2026-11-20"])
    month: str = ""
    device_cost_per_million: DeviceCost | None = Field(
        default=None,
        description="device time of a million successful items and calls, failures included, at "
        "the prices per hour (`MILLRACE_PRICE`) of the workers that serve the model now, whichever "
        "did the work: the ledger has no price of devices, and none of time in which they idle. "
        "For operators, by model; absent where no worker of the model is ready, or none has a "
        "price of its own",
    )


class Usage(BaseModel):
    """Usage by group, and in total."""

    data: list[UsageGroup]
    total: UsageSum


class KeyRequest(Body):
    """The body of POST /keys."""

    tenant: TenantName = Field(pattern=TENANT, description="owner")
    name: str = Field(
        default="", max_length=200, pattern=NO_NUL, description="label", examples=["nightly import"]
    )
    role: Role = "tenant"
    scopes: list[Scope] | None = Field(
        default=None,
        min_length=1,
        max_length=len(SCOPES),
        description="default: all scopes of the role",
    )
    expires_in_s: float | None = Field(
        default=None,
        gt=0,
        le=315_360_000,
        strict=True,
        description="default: never",
        examples=[7_776_000.0],
    )


class KeyOverlap(Body):
    """The body of POST /keys/{key_id}/rotate."""

    overlap_s: float = Field(
        default=OVERLAP_S,
        ge=0,
        le=MAX_OVERLAP_S,
        strict=True,
        description="seconds for which the old key stays valid",
        examples=[3600.0],
    )


class Key(BaseModel):
    """API key, without its secret."""

    id: KeyId
    tenant: TenantName
    name: str = Field(examples=["nightly import"])
    hint: str = Field(description="first characters of the key", examples=["mk_4pQ0"])
    role: Role
    scopes: list[Scope] = Field(examples=[["read", "submit", "infer"]])
    created_at: Timestamp
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None = Field(examples=[AT])
    replaced_by: str | None = Field(description="the key that it was rotated to")


class CreatedKey(Key):
    """API key with its secret."""

    key: str = Field(description="`mk_…`, shown once", examples=["mk_4pQ0…"])


class KeyPage(Page[Key]):
    """Page of keys."""


class TenantTerms(Body):
    """Terms of a tenant."""

    weight: float = Field(
        default=1,
        ge=0.001,
        le=1000,
        strict=True,
        description="fair-share weight",
        examples=[2.0],
    )
    soft_cap: _Amount | None = Field(
        default=None, description="monthly spend that sends a webhook; null: none", examples=[80.0]
    )
    hard_cap: _Amount | None = Field(
        default=None, description="monthly spend that ends all work; null: none", examples=[100.0]
    )


class Tenant(TenantTerms):
    """Tenant and its terms."""

    tenant: TenantName
    created_at: Timestamp
    erased_at: str | None


class TenantPage(Page[Tenant]):
    """Page of tenants."""


class ErasureRemainder(BaseModel):
    """Rows that an erased tenant still has."""

    open: int
    jobs: int = Field(examples=[2])
    erasing: int = Field(description="jobs whose rows or payloads are being removed", examples=[1])
    items: int = Field(description="rows of those jobs", examples=[1000])
    others: int = Field(description="rows of all other kinds", examples=[3])


class Erasure(BaseModel):
    """Progress of a tenant's erasure."""

    tenant: TenantName
    erased_at: Timestamp = Field(description="when its keys were revoked")
    complete: bool
    left: ErasureRemainder


class AuditEntry(BaseModel):
    """One act."""

    id: int = Field(examples=[41])
    at: Timestamp
    tenant: TenantName = Field(description="owner of the target")
    actor: KeyId
    act: str = Field(examples=["job.cancel"])
    target: str = Field(examples=[JOB_ID])
    detail: dict[str, Any] = Field(examples=[{"was": "running"}])
    request_id: RequestId = Field(description="X-Request-Id of the response")


class AuditPage(BaseModel):
    """Page of the audit log."""

    data: list[AuditEntry]
    next: int | None = Field(description="`after` of the next page; null on the last one")


_PerSecond = Annotated[float, Field(ge=1e-6, le=1e9, strict=True)]
_AtMost = Annotated[WholeNumber, Field(gt=0, le=2**31 - 1)]
_AtMostBig = Annotated[WholeNumber, Field(gt=0, le=2**53)]


class LimitObject(Body):
    """Limits of a tenant, one of its keys, or one model; null means unlimited."""

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
    tokens_per_min: _PerSecond | None = Field(
        default=None,
        description="input of calls and tokens that they generate: estimated, then settled",
    )
    calls_in_flight: _AtMost | None = Field(default=None, description="concurrent calls")
    queued_items: _AtMostBig | None = Field(
        default=None, description="items without a result, over all jobs"
    )
    stored_bytes: _AtMostBig | None = Field(
        default=None, description="all that jobs store, results once they have ended, and files"
    )
    job_items: _AtMost | None = Field(default=None, description="items of one job")


class LimitList(Body):
    """All limits of a tenant."""

    data: list[LimitObject] = Field(
        max_length=1000,
        examples=[
            [
                {"requests_per_s": 50.0, "queued_items": 1_000_000},
                {"model": MODEL, "calls_in_flight": 8},
            ]
        ],
    )
