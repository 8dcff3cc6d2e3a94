"""Filter of jobs, from a page's URL."""

import re
from dataclasses import dataclass, replace
from typing import Annotated, get_args
from urllib.parse import urlencode
from uuid import UUID

from fastapi import Depends, Query

from api.dashboard.data.time_range import Ranged, TimeRange
from api.dependencies import require
from api.routes.jobs.lookup import PREFIXES, TENANT_OR_ALL, parse_labels
from api.schemas.common import LABEL, MAX_LABELS, NO_NUL
from jobs import ids
from jobs.errors import Fault, Invalid
from jobs.identity import Caller
from jobs.states import JobState
from jobs.store.jobs.search import Filter
from jobs.store.tenancy import EVERYBODY

_MAX_TEXT = 200
_LABEL = re.compile(LABEL)
Text = Annotated[str, Query(max_length=_MAX_TEXT, pattern=NO_NUL)]


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Parameters of the URL, and the filter that they stand for."""

    state: tuple[str, ...]
    model: str
    tenant: str  #: "": not given
    range: TimeRange
    name: str
    labels: tuple[str, ...]  #: `key:value`
    text: str
    unsuccessful: bool
    ids: tuple[str, ...]
    filter: Filter

    @property
    def is_all(self) -> bool:
        """True if the filter selects all jobs."""
        return not self.query

    @property
    def query(self) -> str:
        """Query string of the filter."""
        return urlencode(list(self.pairs))

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Non-empty parameters, for hidden fields."""
        values = {
            "state": ",".join(self.state),
            "model": self.model,
            "tenant": self.tenant,
            **dict(self.range.pairs),
            "name": self.name,
            "text": self.text,
            "unsuccessful": "1" if self.unsuccessful else "",
        }
        return (
            *((name, value) for name, value in values.items() if value),
            *(("label", label) for label in self.labels),
            *(("job", id) for id in self.ids),
        )

    @property
    def at_any_time(self) -> str:
        """Returns the query string without the time range."""
        return replace(self, range=TimeRange()).query

    def of_state(self, state: str) -> str:
        """Returns the query string with this state instead."""
        return replace(self, state=(state,) if state else ()).query

    def with_label(self, label: str) -> str:
        """Returns the query string with this label too."""
        return replace(self, labels=_unique((*self.labels, label))).query

    def without_label(self, label: str) -> str:
        """Returns the query string without this label."""
        return replace(self, labels=tuple(one for one in self.labels if one != label)).query


def parse_filter(
    range: Ranged,
    state: Annotated[list[str] | None, Query(max_length=20)] = None,
    model: Text = "",
    tenant: Annotated[str, Query(pattern=rf"^$|{TENANT_OR_ALL}")] = "",
    name: Text = "",
    label: Annotated[list[str] | None, Query(max_length=MAX_LABELS + 1)] = None,
    text: Text = "",
    unsuccessful: bool = False,
    job: Annotated[list[str] | None, Query(max_length=100)] = None,
) -> JobFilter:
    """Parses the parameters. Raises Invalid."""
    states = _states(state or [])
    model_name, _, version = model.strip().partition("@")
    labels = _labels(label or [])
    chosen = Filter(
        states=states,
        model=model_name,
        version=version,
        since=range.start,
        until=range.end,
        name=name.strip(),
        labels=parse_labels(labels),
        text=text.strip(),
        unsuccessful=unsuccessful,
        ids=tuple(map(_job, job or [])),
    )
    return JobFilter(
        state=states,
        model=model.strip(),
        tenant=tenant,
        range=range,
        name=chosen.name,
        labels=labels,
        text=chosen.text,
        unsuccessful=unsuccessful,
        ids=tuple(ids.show("job", id) for id in chosen.ids),
        filter=chosen,
    )


Filtered = Annotated[JobFilter, Depends(parse_filter)]


def _states(given: list[str]) -> tuple[JobState, ...]:
    """Parses states, comma-separated or repeated, into the order of a job's life."""
    named = {word for one in given for word in one.split(",") if word}
    if unknown := named - {*get_args(JobState)}:
        raise _fault("state", f"unknown state {min(unknown)}")
    return tuple(state for state in get_args(JobState) if state in named)


def _labels(given: list[str]) -> tuple[str, ...]:
    """Parses labels; a field that was left empty is none."""
    labels = _unique(tuple(filter(None, map(str.lstrip, given))))
    for label in labels:
        if not _LABEL.match(label):
            raise _fault("label", f"{label[:50]!r} is not a label; write key:value")
    return labels


def _unique(labels: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(labels))


def _job(given: str) -> UUID:
    if id := ids.parse(PREFIXES, given):
        return id
    raise _fault("job", f"{given[:50]!r} is not a job id")  # dropping it would select all jobs


def _fault(name: str, why: str) -> Invalid:
    return Invalid(why, faults=[Fault(("query", name), "invalid", why)])


def tenant_scope(caller: Caller, tenant: str) -> str:
    """Returns the tenant whose jobs are shown: the caller's own; for operators the given one, or
    EVERYBODY. Raises Forbidden."""
    if caller.may("operate"):
        return tenant or EVERYBODY
    if tenant not in ("", caller.tenant):
        require(caller, "operate")
    return caller.tenant
