"""Schemas of the registry of models, for admins."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from api.schemas.common import (
    JOB_ID,
    MODEL,
    NO_NUL,
    Body,
    JobId,
    ModelName,
    ModelVersion,
    TenantName,
    Timestamp,
)
from jobs.models.routing.table import KEEP_WARM_S, MOST_WARM_S

_DIGEST = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
_NAME = r"^[^@\x00]+$"
_Percent = Annotated[float, Field(ge=0, le=100, strict=True, examples=[95.0])]
_NewName = Annotated[str, Field(pattern=_NAME, max_length=200, examples=[MODEL])]
_NewVersion = Annotated[str, Field(pattern=_NAME, max_length=200, examples=["2"])]

Entry = Annotated[
    dict[str, Any],
    Field(
        description="fields of an entry of the models file but name and version",
        examples=[{"engine": "minilm", "target_ms": 250}],
    ),
]
Sticky = Literal["", "tenant", "user"]
Change = Literal["added", "changed", "activated", "unchanged"]
_CHANGES = "unchanged: it was so before; activated: a retired version is active again"


class VersionRequest(Body):
    """The body of POST /admin/models: one version."""

    name: _NewName
    version: _NewVersion
    entry: Entry
    artifact: str | None = Field(
        default=None,
        pattern="^sha256:[0-9a-f]{64}$",
        description="digest of its files, which were pushed before",
        examples=[_DIGEST],
    )
    probe: dict[str, Any] | None = Field(
        default=None,
        description="known answers: inputs, outputs and their tolerance",
        examples=[{"inputs": ["a text"], "outputs": [[0.5, 0.5]], "tolerance": 0.001}],
    )


class ProbeRequest(Body):
    """The body of PUT /admin/models/{name}/versions/{version}/probe: known answers."""

    inputs: list[Any] = Field(min_length=1, max_length=1000, examples=[["a text"]])
    outputs: list[Any] = Field(
        max_length=1000, description="one for each input", examples=[[[0.5, 0.5]]]
    )
    tolerance: float = Field(
        default=0.001,
        ge=0,
        le=1,
        description="how far numbers with a fraction may be apart, relative to the larger and to 1",
        examples=[0.001],
    )
    params: dict[str, Any] = Field(
        default={}, description="parameters of the model, for all inputs", examples=[{}]
    )


class EntryList(Body):
    """The body of POST /admin/models/apply: entries of a models file."""

    models: list[dict[str, Any]] = Field(
        min_length=1,
        max_length=1000,
        description="entries as the models file has them, with name and version",
        examples=[[{"name": MODEL, "version": "2", "engine": "minilm"}]],
    )


class VersionChange(BaseModel):
    """Change of one version."""

    name: ModelName
    version: ModelVersion
    change: Change = Field(description=_CHANGES, examples=["added"])


class VersionRetired(VersionChange):
    """Retirement of a version."""

    unfinished_jobs: list[JobId] = Field(
        description="jobs that are bound to it, and go on until they end; 100 at most",
        examples=[[JOB_ID]],
    )


class VersionChanges(BaseModel):
    """Changes of a request, by version."""

    data: list[VersionChange]


class RegisteredVersion(BaseModel):
    """Version of a model, as it was registered."""

    name: ModelName
    version: ModelVersion
    state: Literal["active", "retired"]
    entry: Entry
    artifact: str | None = Field(description="digest of its files", examples=[_DIGEST])
    probe: dict[str, Any] | None = Field(
        description="known answers",
        examples=[{"inputs": ["a text"], "outputs": [[0.5, 0.5]], "tolerance": 0.001}],
    )
    created_at: Timestamp
    created_by: str = Field(description="as actor of the audit log", examples=["cli"])


class Share(Body):
    """Version, and its share of the calls."""

    version: ModelVersion
    percent: _Percent


class RouteRequest(Body):
    """The body of PUT /admin/models/{name}/routes/{tenant}."""

    splits: list[Share] = Field(
        min_length=1,
        max_length=100,
        description="shares, which make 100; the first is the version that jobs go to",
        examples=[[{"version": "1", "percent": 95.0}, {"version": "2", "percent": 5.0}]],
    )
    sticky: Sticky = Field(
        default="", description="callers that stay with their version", examples=["user"]
    )
    shadow: Share | None = Field(
        default=None,
        description="version that gets copies of a share of the calls; their answers are dropped",
    )


class Shadow(Share):
    """Version that gets copies of calls."""

    copies: dict[str, dict[str, int]] = Field(
        default_factory=dict,
        description="copies for it by all routes, until a week after the last one: by the version "
        "that answered, and by equal, close, different, failed, shed; of one model alone",
        examples=[{"1": {"equal": 940, "close": 31, "different": 2, "shed": 27}}],
    )


class ModelRoute(BaseModel):
    """Route of a model."""

    tenant: TenantName = Field(description="`*`: all tenants that have no route of their own")
    splits: list[Share]
    sticky: Sticky
    shadow: Shadow | None


class AliasRequest(Body):
    """The body of PUT /admin/models/{name}/aliases/{alias}."""

    version: str = Field(pattern=NO_NUL, description="active version", examples=["2"])
    keep_warm_s: float = Field(
        default=KEEP_WARM_S,
        ge=0,
        le=MOST_WARM_S,
        strict=True,
        description="time for which workers keep the version before in memory",
    )


class ModelAlias(BaseModel):
    """Alias of a model."""

    name: ModelName
    alias: str = Field(examples=["stable"])
    version: ModelVersion
    change: Change = Field(description=_CHANGES, examples=["changed"])


class RegisteredModel(BaseModel):
    """Model with its versions, aliases and routes."""

    name: ModelName
    versions: list[RegisteredVersion]
    aliases: dict[str, str] = Field(
        description="versions by alias", examples=[{"stable": "1", "canary": "2"}]
    )
    routes: list[ModelRoute]


class RegisteredModels(BaseModel):
    """All models of the registry."""

    data: list[RegisteredModel]
