"""Filter of calls, from a page's URL."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlencode

from fastapi import Depends, Query

from api.dashboard.data.job_filter import Text
from api.dashboard.data.time_range import Ranged, TimeRange
from api.routes.jobs.lookup import TENANT_OR_ALL
from jobs.calls.records import CallFilter
from jobs.errors import Fault, Invalid


@dataclass(frozen=True, slots=True)
class CallFields:
    """Parameters of the URL as they were given; "": not given."""

    model: str
    tenant: str
    outcome: str
    slower_ms: str
    text: str
    range: TimeRange = TimeRange()

    @property
    def query(self) -> str:
        """Query string of the filter."""
        names = ("model", "tenant", "outcome", "slower_ms", "text")
        given = [(name, getattr(self, name)) for name in names if getattr(self, name)]
        return urlencode([*given, *self.range.pairs])

    def filter(self, tenant: str) -> CallFilter:
        """Returns the filter of a tenant's calls, "" for all. Raises Invalid."""
        return CallFilter(
            model=self.model,
            tenant=tenant,
            outcome=self.outcome,
            slower_ms=_number("slower_ms", self.slower_ms),
            since=self.range.start,
            until=self.range.end,
            text=self.text,
        )


def _number(name: str, given: str) -> float | None:
    try:
        number = float(given) if given else None
    except ValueError:
        number = -1.0
    if number is None or 0 <= number < 1e9:
        return number
    why = f"{given[:50]!r} is not a number of milliseconds; write 250"
    raise Invalid(why, faults=[Fault(("query", name), "invalid", why)])


def _fields(
    range: Ranged,
    model: Text = "",
    tenant: Annotated[str, Query(pattern=rf"^$|{TENANT_OR_ALL}")] = "",
    outcome: Text = "",
    slower_ms: Text = "",
    text: Text = "",
) -> CallFields:
    return CallFields(
        model.strip(), tenant.strip(), outcome.strip(), slower_ms.strip(), text.strip(), range
    )


Fields = Annotated[CallFields, Depends(_fields)]
