"""Schemas of figures over time."""

from typing import Literal

from pydantic import BaseModel, Field

from api.schemas.common import MODEL, Timestamp

HistoryRange = Literal["30m", "6h", "24h", "7d", "30d"]


class HistoryPoint(BaseModel):
    """Figures from a time on; null: not known, or there is no such figure."""

    at: Timestamp
    calls_s: float | None = Field(
        description="answered calls per second; of a worker or pool: launched", examples=[41.5]
    )
    items_s: float | None = Field(
        description="succeeded items per second; of a worker or pool: launched", examples=[380.0]
    )
    tokens_s: float | None = Field(description="generated tokens per second")
    refused_s: float | None = Field(description="refused calls per second", examples=[0.0])
    failed_s: float | None = Field(description="failed calls and items per second", examples=[0.1])
    waiting: float | None = Field(
        description="calls and items without a result: the most of that time", examples=[12000]
    )
    busy: float | None = Field(
        description="busy share of the devices, 0 to 1; of a model: devices busy with it",
        examples=[0.82],
    )
    p50_s: float | None = Field(
        description="median latency of calls, s; of a worker or pool: of launches", examples=[0.021]
    )
    p95_s: float | None = Field(description="95th percentile, likewise", examples=[0.064])


class History(BaseModel):
    """Figures of one subject over time."""

    about: str = Field(examples=[f"model:{MODEL}@1"])
    range: HistoryRange = Field(examples=["24h"])
    step_s: int = Field(description="time that each point stands for", examples=[600])
    data: list[HistoryPoint] = Field(description="oldest first; none of times without a keeper")
