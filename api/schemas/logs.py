"""Schemas of lines of workers' logs."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

LogLevel = Literal["debug", "info", "warning", "error", "critical"]


class LogLine(BaseModel):
    """A line as ops/docs/reference/logs.md has it; ids of its subject are fields of their own."""

    model_config = ConfigDict(extra="allow")

    id: str = Field(examples=["1793774267412-0"])
    timestamp: str = Field(default="", examples=["2026-11-22T06:31:07.412Z"])
    level: str = Field(examples=["warning"])
    logger: str = Field(examples=["workers.process.slice_runner"])
    message: str = Field(examples=["1 of 1 leases had been lost"])
    exception: str = Field(default="", description="traceback; empty: none")


class LogLines(BaseModel):
    """The last lines of a worker's log, oldest first."""

    data: list[LogLine]
    next: str | None = Field(
        description="`after` for what follows these lines", examples=["1793774267412-0"]
    )
