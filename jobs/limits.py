"""Bounds: the single numbers of limits, and which of them apply to a request."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from jobs.identity import Limit

Name = Literal[
    "requests_per_s",
    "tokens_per_s",
    "tokens_per_min",
    "calls_in_flight",
    "open_streams",
    "queued_items",
    "stored_bytes",
    "job_items",
]


@dataclass(frozen=True, slots=True)
class Bound:
    """One number of a Limit."""

    name: Name  #: field of the Limit
    most: float
    model: str = ""  #: as in the Limit
    key: str = ""  #: as in the Limit

    @property
    def place(self) -> str:
        """Field of its bucket among those of the tenant; a changed number has a new bucket."""
        return f"{self.name}\n{self.model}\n{self.key}\n{self.most:g}"

    @property
    def step_ms(self) -> float:
        """Time (ms) in which a rate refills by one request or token."""
        return (60_000 if self.name == "tokens_per_min" else 1000) / self.most

    @property
    def burst(self) -> float:
        """Most requests or tokens at once."""
        return max(1.0, self.most)

    @property
    def whose(self) -> str:
        """Owner of the limit, in words."""
        return f"the key {self.key}" if self.key else "the tenant"

    def described(self) -> dict[str, object]:
        """Returns the limit as a member of a problem."""
        of, model = "key" if self.key else "tenant", self.model or None
        return {"name": self.name, "value": self.most, "of": of, "model": model}


def bounds_of(limits: Iterable[Limit], name: Name, model: str) -> list[Bound]:
    """Returns the bounds of a request for a model; "": of any request."""
    return [
        Bound(name, most, limit.model, limit.key)
        for limit in limits
        if limit.model in ("", model) and (most := getattr(limit, name))
    ]


def most_items(limits: Sequence[Limit], model: str) -> Bound | None:
    """Returns the bound on the items of one job: at most as many as may be queued."""
    bounds = bounds_of(limits, "job_items", model) + bounds_of(limits, "queued_items", model)
    return min(bounds, key=lambda bound: bound.most, default=None)


def most_stored(limits: Sequence[Limit], model: str) -> Bound | None:
    """Returns the bound on the bytes of one job: at most as many as may be stored."""
    bounds = bounds_of(limits, "stored_bytes", model)
    return min(bounds, key=lambda bound: bound.most, default=None)
