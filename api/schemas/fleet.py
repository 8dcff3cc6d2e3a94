"""Schemas of models, workers and diagnoses."""

from typing import Literal

from pydantic import (
    BaseModel,
    Field,
)

from jobs.explain.diagnosis import Code, Severity


class Finding(BaseModel):
    """One cause, in words and figures."""

    code: Code = Field(description="what it is; ops/docs/why.md has a line for each")
    severity: Severity
    about: str = Field(description="model:m@1, tenant:t, worker:12, database, job:job_…, …")
    words: str
    advice: str
    evidence: dict[str, float | str] = Field(description="the figures, in base units")


class Explanation(BaseModel):
    """What is the matter with something, the most severe first; nothing: it does what it should."""

    about: str
    diagnoses: list[Finding]


class ModelState(BaseModel):
    """One version of a model. engine, target_ms, unit: null once it is declared no more; workers:
    in how many it is ready."""

    name: str
    version: str
    engine: str | None
    target_ms: int | None
    unit: str | None
    ready: bool
    workers: int
    states: dict[Literal["absent", "loading", "warming", "ready", "draining", "failed"], int] = (
        Field(description="in how many workers it stands how")
    )
    load_ms: float | None = Field(description="until it was warm, the longest; null: not known")
    error: str | None = Field(description="why it can't be loaded somewhere")


class ModelList(BaseModel):
    data: list[ModelState]


class WorkerModel(BaseModel):
    """A model in one worker. memory_mb, load_ms: null until they are known."""

    model: str
    state: Literal["absent", "loading", "warming", "ready", "draining", "failed"]
    memory_mb: float | None
    load_ms: float | None
    error: str | None


class Worker(BaseModel):
    """One incarnation of a worker process. drain_asked: it is to take no more work; died: how it
    ended, where that was no goodbye."""

    id: int
    name: str
    pool: str
    device: str
    state: Literal["loading", "ready", "draining", "stopped", "lost"]
    drain_asked: bool
    died: Literal["killed", "crashed", "hung"] | None
    models: list[WorkerModel]
    started_at: str
    heartbeat_at: str
    ended_at: str | None


class WorkerList(BaseModel):
    data: list[Worker]
