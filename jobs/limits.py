"""The numbers of limits, one by one: which of them bind a request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from jobs.identity import Limit

Name = Literal[
    "requests_per_s",
    "tokens_per_s",
    "calls_in_flight",
    "queued_items",
    "stored_bytes",
    "job_items",
]


@dataclass(frozen=True, slots=True)
class Bound:
    """One number of a Limit: what it is called there, and the number; model, key: as there."""

    name: Name
    most: float
    model: str = ""
    key: str = ""

    @property
    def place(self) -> str:
        """Where its bucket is kept, among those of the tenant: one for each number, so that
        another limit counts at once."""
        return f"{self.name}\n{self.model}\n{self.key}\n{self.most:g}"

    @property
    def step_ms(self) -> float:
        """What one request, or token, takes of a rate."""
        return 1000 / self.most

    @property
    def burst(self) -> float:
        """As many at once."""
        return max(1.0, self.most)

    @property
    def whose(self) -> str:
        return f"the key {self.key}" if self.key else "the tenant"

    def described(self) -> dict[str, object]:
        """As a problem names it."""
        of, model = "key" if self.key else "tenant", self.model or None
        return {"name": self.name, "value": self.most, "of": of, "model": model}


def bounds_of(limits: Iterable[Limit], name: Name, model: str) -> list[Bound]:
    """Of the limits that concern a caller, what binds a request for a model; "": for whatever."""
    return [
        Bound(name, most, limit.model, limit.key)
        for limit in limits
        if limit.model in ("", model) and (most := getattr(limit, name))
    ]


def most_items(limits: Sequence[Limit], model: str) -> Bound | None:
    """What bounds the items of one job: no room is ever made for more than may be queued."""
    bounds = bounds_of(limits, "job_items", model) + bounds_of(limits, "queued_items", model)
    return min(bounds, key=lambda bound: bound.most, default=None)
