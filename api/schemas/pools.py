"""Schemas of pools and their autoscaler."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from api.schemas.common import NO_NUL, Body, Timestamp, whole

_Reason = Annotated[str, StringConstraints(max_length=1000, pattern=NO_NUL)]


class ScalingRequest(Body):
    """Policy of a pool."""

    policy: dict[str, Any] = Field(
        default_factory=dict,
        description="what differs from the defaults (ops/docs/how-to/operations/scaling.md)",
        examples=[{"min_replicas": 1, "max_replicas": 6, "actuator": "local"}],
    )


class ScalingVerb(Body):
    """Word of a person about the autoscaler of a pool."""

    reason: _Reason = Field("", examples=["a load test until noon"])


class ScalingPause(ScalingVerb):
    """Pause of the autoscaler."""

    replicas: Annotated[int, Field(strict=True, ge=0, le=10_000), BeforeValidator(whole)] | None = (
        Field(
            None, description="replicas meanwhile; null: as many as were decided last", examples=[3]
        )
    )


class PoolLoad(BaseModel):
    """Load of a pool, as a keeper measured it last; null: not known."""

    capacity_used: float | None = Field(
        description="work of calls over the last ten seconds, refused ones included, as device "
        "time at full launches over what the ready workers give: 1 is all of it. Of the pool api: "
        "requests over those that its apis carry",
        examples=[0.62],
    )
    offered_replicas: float | None = Field(description="the same work, in workers", examples=[1.24])
    backlog_s: float | None = Field(
        description="work of waiting items, as time of one worker, s", examples=[310.0]
    )
    drain_s: float | None = Field(
        description="predicted time until waiting items are done, s", examples=[408.0]
    )
    oldest_wait_s: float | None = Field(
        description="longest wait of a call that waits now, s", examples=[0.02]
    )
    slack_s: float | None = Field(
        description="time until the most urgent waiting call is due, s; null: none waits",
        examples=[0.03],
    )
    refused: float | None = Field(
        description="share of calls that are refused for load", examples=[0.0]
    )
    late: float | None = Field(
        description="share of answered calls past their target", examples=[0.01]
    )
    lag_s: float | None = Field(
        description="lag of the event loop that half of the apis have at least, s; of the pool "
        "api alone",
        examples=[None],
    )
    requests_s: float | None = Field(
        description="HTTP requests to all apis over the last ten seconds, per second; likewise",
        examples=[None],
    )


class Scaling(BaseModel):
    """Autoscaler of a pool."""

    policy: dict[str, Any]
    paused: bool
    desired: int | None = Field(
        description="replicas, as decided last; null: nothing was", examples=[2]
    )
    reason: str = Field(description="reason of that number")
    updated_at: Timestamp
    updated_by: str


class ScaleEvent(BaseModel):
    """Decision of the autoscaler, or a person's word."""

    at: Timestamp
    act: str = Field(
        description="up, down, overdue or failed; set, pause, resume or off by people",
        examples=["up"],
    )
    desired: int | None = Field(description="replicas after it", examples=[3])
    reason: str
    actor: str
    figures: dict[str, float] = Field(description="load that it was decided on")


class Pool(BaseModel):
    """Pool of workers, or the one of the apis."""

    pool: str = Field(examples=["default"])
    workers: dict[str, int] = Field(
        description="live workers, or apis, by state", examples=[{"ready": 2}]
    )
    load: PoolLoad
    scaling: Scaling | None = Field(description="null: the autoscaler is off")
    events: list[ScaleEvent] = Field(
        default_factory=list, description="newest first; of one pool alone"
    )


class PoolList(BaseModel):
    """Pools of models and workers, by name."""

    data: list[Pool]
