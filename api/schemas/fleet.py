"""Schemas of models, workers and diagnoses."""

from typing import Literal

from pydantic import BaseModel, Field

from jobs.explain.diagnosis import Code, Severity


class Finding(BaseModel):
    """One cause, in words and figures."""

    code: Code = Field(description="cause; ops/docs/why.md has a line for each")
    severity: Severity
    about: str = Field(description="model:m@1, tenant:t, worker:12, database, job:job_…, …")
    words: str
    advice: str
    evidence: dict[str, float | str] = Field(description="the figures, in base units")


class Explanation(BaseModel):
    """Findings about something, the most severe first; an empty list means no problem."""

    about: str
    diagnoses: list[Finding]


class ModelState(BaseModel):
    """One version of a model."""

    name: str
    version: str
    engine: str | None = Field(description="null once the version is no longer declared")
    target_ms: int | None = Field(description="null once the version is no longer declared")
    unit: str | None = Field(description="null once the version is no longer declared")
    ready: bool
    workers: int = Field(description="workers in which it is ready")
    states: dict[Literal["absent", "loading", "warming", "ready", "draining", "failed"], int] = (
        Field(description="workers by state of the model")
    )
    load_ms: float | None = Field(description="longest time to load and warm up; null: not known")
    error: str | None = Field(description="error of a worker that can't load it")


class ModelList(BaseModel):
    """All model versions."""

    data: list[ModelState]


class WorkerModel(BaseModel):
    """Model in one worker."""

    model: str
    state: Literal["absent", "loading", "warming", "ready", "draining", "failed"]
    memory_mb: float | None = Field(description="null: not known yet")
    load_ms: float | None = Field(description="null: not known yet")
    error: str | None


class Worker(BaseModel):
    """One incarnation of a worker process."""

    id: int
    name: str
    pool: str
    device: str
    state: Literal["loading", "ready", "draining", "stopped", "lost"]
    drain_asked: bool = Field(description="it is to take no more work")
    died: Literal["killed", "crashed", "hung"] | None = Field(
        description="how it ended, where it did not stop by itself"
    )
    models: list[WorkerModel]
    started_at: str
    heartbeat_at: str
    ended_at: str | None


class WorkerList(BaseModel):
    """Workers that live, or ended lately."""

    data: list[Worker]
