"""Schemas of rollouts."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints

from api.schemas.common import AT, MODEL, NO_NUL, Body, ModelName, ModelVersion, Timestamp

_Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
_Reason = Annotated[str, StringConstraints(max_length=1000, pattern=NO_NUL)]
_Sticky = Literal["", "tenant", "user"]


class RolloutRequest(Body):
    """New rollout."""

    model: _Name = Field(examples=[MODEL])
    canary: _Name = Field(description="version that is coming", examples=["2"])
    stable: Annotated[str, StringConstraints(max_length=200, pattern=NO_NUL)] = Field(
        "",
        description="version to compare it with; default: the alias `stable`, or else the newest "
        "version but the canary",
        examples=["1"],
    )
    sticky: _Sticky = Field("", description="callers that stay in their lane, and are its unit")
    policy: dict[str, Any] = Field(
        default_factory=dict,
        description="steps and limits that differ from the defaults "
        "(ops/docs/how-to/models/rollouts.md)",
        examples=[{"steps": [5, 50, 100], "min_stay_s": 60}],
    )


class RolloutVerb(Body):
    """Word of a person about a rollout."""

    reason: _Reason = Field("", examples=["the dashboards of the product look wrong"])


class RolloutEvent(BaseModel):
    """Act of the keeper or of a person."""

    at: Timestamp
    act: str = Field(
        description="start, advance, hold, resume, promote or roll_back", examples=["advance"]
    )
    actor: str = Field(
        description="as in the audit log; empty: an older release wrote it", examples=["keeper"]
    )
    reason: str
    figures: dict[str, Any] = Field(description="figures behind it")


class Rollout(BaseModel):
    """Rollout of a version."""

    id: str = Field(examples=["rollout_01kajf7q5rf0h8zq2m4w6y8a0b"])
    model: ModelName
    stable: ModelVersion
    canary: ModelVersion
    state: Literal["running", "held", "promoted", "rolled_back"]
    step: int = Field(description="index among the steps of the policy", examples=[1])
    percent: float = Field(description="share of the canary", examples=[5.0])
    policy: dict[str, Any]
    sticky: _Sticky
    reason: str = Field(description="reason of the state")
    started_at: Timestamp
    started_by: str
    step_at: Timestamp
    ended_at: str | None = Field(examples=[AT])
    waits_for: str = Field(
        "",
        description="what its next step waits for; of one rollout alone",
        examples=["120 launches of 200 at this step"],
    )
    figures: dict[str, Any] = Field(
        default_factory=dict,
        description="lanes, evidence by guardrail, costs "
        "(ops/docs/how-to/models/rollouts.md): of the last "
        "seconds, or of the end; of one rollout alone",
    )
    events: list[RolloutEvent] = Field(
        default_factory=list, description="newest first; of one rollout alone"
    )


class RolloutList(BaseModel):
    """Rollouts: those that are open first, then the newest."""

    data: list[Rollout]
