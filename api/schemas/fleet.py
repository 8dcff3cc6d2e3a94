"""Schemas of models, workers and diagnoses."""

from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.common import MODEL, ModelName, ModelVersion, Timestamp
from jobs.explain.diagnosis import Code, Severity

_State = Literal[
    "absent", "verifying", "staging", "loading", "warming", "ready", "draining", "failed"
]
_DECLARED = "null once the version is no longer declared"


class Finding(BaseModel):
    """One cause, in words and figures."""

    code: Code = Field(
        description="cause; ops/docs/how-to/operations/why.md has a line for each",
        examples=["device_saturated"],
    )
    severity: Severity = Field(examples=["warning"])
    about: str = Field(
        description="model:m@1, tenant:t, worker:12, database, job:job_…, …",
        examples=[f"model:{MODEL}@1"],
    )
    words: str = Field(
        examples=[
            f"the devices of {MODEL}@1 are 97 % busy, and the api's CPUs have time to spare (its "
            "loop is 1 ms late): 18 % of its calls miss the target of 250 ms"
        ]
    )
    advice: str = Field(examples=["more workers of its pool, or a faster device"])
    evidence: dict[str, float | str] = Field(
        description="the figures, in base units",
        examples=[{"busy": 0.97, "missed": 0.18, "loop_lag_s": 0.001}],
    )


class Explanation(BaseModel):
    """Findings about something, the most severe first; an empty list means no problem."""

    about: str = Field(examples=[f"model:{MODEL}@1"])
    diagnoses: list[Finding]


class ModelState(BaseModel):
    """One version of a model."""

    name: ModelName
    version: ModelVersion
    engine: str | None = Field(description=_DECLARED, examples=[MODEL])
    target_ms: int | None = Field(description=_DECLARED, examples=[250])
    unit: str | None = Field(description=_DECLARED, examples=["tokens"])
    ready: bool = Field(examples=[True])
    workers: int = Field(description="workers in which it is ready", examples=[1])
    states: dict[_State, int] = Field(
        description="workers by state of the model", examples=[{"ready": 1}]
    )
    load_ms: float | None = Field(
        description="longest time to load and warm up; null: not known", examples=[1840.5]
    )
    error: str | None = Field(description="error of a worker that can't load it")


class ModelList(BaseModel):
    """All model versions."""

    data: list[ModelState]


class WorkerModel(BaseModel):
    """Model in one worker."""

    model: str = Field(examples=[f"{MODEL}@1"])
    state: _State = Field(examples=["ready"])
    memory_mb: float | None = Field(description="null: not known yet", examples=[410.5])
    load_ms: float | None = Field(description="null: not known yet", examples=[1840.5])
    error: str | None


class Gpu(BaseModel):
    """State of a worker's GPU at its last report, by NVML; null: not known."""

    sm_activity: float | None = Field(
        description="mean share of the SMs that had work since the report before, 0 to 1; GPUs "
        "from Hopper on tell it",
        examples=[0.62],
    )
    kernel_activity: float | None = Field(
        description="share of a recent second with a kernel running, 0 to 1: one SM is enough",
        examples=[0.97],
    )
    power_w: float | None = Field(description="of the whole GPU, W", examples=[560.5])
    power_limit_w: float | None = Field(examples=[700.0])
    temperature_c: int | None = Field(examples=[67])
    throttling: list[str] | None = Field(
        description="reasons for lower clocks that hold: sw_power_cap, hw_slowdown, sync_boost, "
        "sw_thermal_slowdown, hw_thermal_slowdown, hw_power_brake_slowdown",
        examples=[["sw_power_cap"]],
    )
    ecc_uncorrected: int | None = Field(
        description="uncorrected memory errors since its driver was loaded", examples=[0]
    )
    xids: dict[str, int] | None = Field(
        description="critical errors by Xid number since the worker began, whichever process had "
        "them",
        examples=[{"79": 1}],
    )


class Worker(BaseModel):
    """One incarnation of a worker process."""

    id: int = Field(examples=[12])
    name: str = Field(examples=["gpu-3:4711"])
    pool: str = Field(examples=["default"])
    device: str = Field(examples=["cuda:0"])
    device_kind: str | None = Field(
        description="what its device is, as it reported last; null: it hasn't, or has ended",
        examples=["NVIDIA H100 80GB HBM3"],
    )
    price: float | None = Field(
        description="price of its device (`MILLRACE_PRICE`), likewise", examples=[2.5]
    )
    gpu: Gpu | None = Field(description="null: it has none, or NVML tells nothing")
    state: Literal["loading", "ready", "draining", "stopped", "lost", "quarantined"] = Field(
        description="quarantined: its device failed three times in a row, and no other worker is "
        "started in its place until it is resumed",
        examples=["ready"],
    )
    drain_asked: bool = Field(description="it is to take no more work")
    died: Literal["killed", "crashed", "hung", "sick"] | None = Field(
        description="how it ended, where it did not stop by itself; sick: its device failed"
    )
    device_error: str | None = Field(description="error of its device, where it ended by that")
    spot_notice_s: float = Field(
        description="time between the notice and the reclaim of its machine "
        "(`MILLRACE_SPOT_NOTICE_S`), s; 0: it isn't spot",
        examples=[120],
    )
    reclaimed_by: str | None = Field(
        description="notice by which its machine was reclaimed: sigterm, file, aws, gcp, azure; "
        "silence: none came; null: it wasn't",
        examples=["aws"],
    )
    models: list[WorkerModel]
    started_at: Timestamp
    heartbeat_at: Timestamp
    ended_at: str | None


class WorkerList(BaseModel):
    """Workers that live, or ended lately."""

    data: list[Worker]
