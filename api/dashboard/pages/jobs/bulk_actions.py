"""Bulk actions: a verb for all jobs that match a filter, confirmed first, then applied one by one.

Only confirmed jobs are changed: later ones are excluded, and one that has left the filter's states
is skipped. Each job has its own transaction, checks and audit entry.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Path, Response

from api.context import Context
from api.dashboard.auth.viewer import Form
from api.dashboard.data.job_filter import Filtered, JobFilter, tenant_scope
from api.dashboard.rendering import layout, page_router
from api.routes.jobs import verbs
from api.routes.jobs.lookup import PREFIXES
from jobs import clock, ids
from jobs.errors import Malformed, MillraceError, NotFound, Overloaded
from jobs.states import JOB_STATES, TERMINAL, TRANSITIONS, JobState
from jobs.store.jobs import search
from jobs.store.jobs.search import MOST_COUNTED, Filter
from jobs.views import jobs

router = page_router.router()
Bulk = Literal["cancel", "pause", "resume", "retry"]
_Verb = Annotated[Bulk, Path()]
_EXAMPLES = 10
_STEP = 500
MAX_S = 20.0  # per request; another one continues with the rest
MAX_CONCURRENT = 4
"""Bulk actions per api process, one per tenant: each holds a thread and a connection."""

_active: set[str] = set()
_lock = Lock()

APPLICABLE: dict[Bulk, frozenset[JobState]] = {
    "cancel": frozenset(JOB_STATES) - TERMINAL - {"cancelling"},
    "pause": frozenset(s for s in JOB_STATES if "paused" in TRANSITIONS[s]),
    "resume": frozenset({"paused"}),
    "retry": TERMINAL,
}
"""States in which each verb has an effect."""


class _Changed(MillraceError):
    """The job has left the filter's states."""


@dataclass(slots=True)
class Summary:
    """Result of a bulk action."""

    done: int = 0
    changed: int = 0  #: skipped: had changed state or were deleted
    refused: Counter[str] = field(default_factory=Counter)  #: by reason
    examples: dict[str, str] = field(default_factory=dict)  #: job id by reason
    last: UUID | None = None  #: last job processed, if time ran out


@router.get("/jobs/all/{verb}")
def confirm(page: layout.SubmitterPage, verb: _Verb, filters: Filtered) -> Response:
    """Shows how many jobs it would change, and some of them."""
    return _confirmation(page, verb, filters)


@router.post("/jobs/all/{verb}")
def do(
    page: layout.SubmitterPage, form: Form, verb: _Verb, filters: Filtered, after: str = ""
) -> Response:
    """Applies the verb, or asks again if more jobs match now."""
    made_before, confirmed = _confirmed(form)
    tenant, filter = tenant_scope(page.caller, filters.tenant), _applicable(filters.filter, verb)
    last = ids.parse(PREFIXES, after)
    with _slot(page.caller.tenant):
        if last is None and _count(page.context, tenant, filter, made_before) > confirmed:
            return _confirmation(page, verb, filters, confirmed)
        job_ids = _each(page.context, tenant, filter, made_before, last)
        summary = _perform(job_ids, partial(_one, page, verb, filter))
    return page.render(
        "many_done.html", verb=verb, filters=filters, summary=summary,
        made_before=form["made_before"], count=confirmed,
        after=ids.show("job", summary.last) if summary.last else "",
    )  # fmt: skip


@contextmanager
def _slot(tenant: str) -> Iterator[None]:
    """Holds one of the concurrent slots. Raises Overloaded."""
    with _lock:
        if tenant in _active or len(_active) >= MAX_CONCURRENT:
            raise Overloaded("too many bulk actions are running; try again in a moment")
        _active.add(tenant)
    try:
        yield
    finally:
        with _lock:
            _active.remove(tenant)


def _confirmed(form: Mapping[str, str]) -> tuple[datetime, int]:
    """Parses (creation time of the newest job, number of jobs). Raises Malformed."""
    try:
        count = min(int(form["count"]), MOST_COUNTED + 1)
        return datetime.fromisoformat(form["made_before"]), count
    except (KeyError, ValueError):
        raise Malformed("the form lacks the confirmation; reload the page") from None


def _applicable(filter: Filter, verb: Bulk) -> Filter:
    """Restricts the filter to states in which the verb has an effect."""
    states = tuple(s for s in filter.states or JOB_STATES if s in APPLICABLE[verb])
    return replace(filter, states=states, unsuccessful=filter.unsuccessful or verb == "retry")


def _count(context: Context, tenant: str, filter: Filter, made_before: datetime) -> int:
    with context.acting(tenant) as tx:
        return sum(search.counts(tx, tenant, filter, made_before).values()) * bool(filter.states)


def _confirmation(
    page: layout.Page, verb: Bulk, filters: JobFilter, confirmed: int | None = None
) -> Response:
    """Renders the confirmation; `confirmed`: number confirmed before, if more match now."""
    tenant, filter = tenant_scope(page.caller, filters.tenant), _applicable(filters.filter, verb)
    with page.context.acting(tenant) as tx:
        now = search.now(tx)
        all = search.counts(tx, tenant, filters.filter, now)
        counts = search.counts(tx, tenant, filter, now) if filter.states else {}
        rows = search.page(tx, tenant, filter, limit=_EXAMPLES) if filter.states else []
    count = sum(counts.values())
    return page.render(
        "many.html", verb=verb, filters=filters, counts=counts, count=count,
        left_alone={s: n - counts.get(s, 0) for s, n in all.items() if n > counts.get(s, 0)},
        is_exact=count <= MOST_COUNTED, jobs=[(row, jobs.job_object(row)) for row in rows],
        made_before=now.isoformat(), as_of=now, confirmed=confirmed,
    )  # fmt: skip


def _each(
    context: Context, tenant: str, filter: Filter, made_before: datetime, after: UUID | None
) -> Iterator[UUID]:
    """Yields the matching jobs, newest first."""
    while filter.states:
        with context.acting(tenant) as tx:
            job_ids = search.matching_ids(tx, tenant, filter, made_before, after=after, limit=_STEP)
        yield from job_ids
        if len(job_ids) < _STEP:
            return
        after = job_ids[-1]


def _one(page: layout.Page, verb: Bulk, filter: Filter, id: str) -> None:
    def check(before: str) -> None:
        if before not in filter.states:
            raise _Changed(before)

    verbs.perform(*page.arguments, verb, id, check)


def _perform(job_ids: Iterator[UUID], act: "partial[None]") -> Summary:
    """Applies `act` to all jobs, until the time is up."""
    summary, until_s = Summary(), clock.monotonic() + MAX_S
    for id in job_ids:
        shown = ids.show("job", id)
        try:
            act(shown)
            summary.done += 1
        except (_Changed, NotFound):
            summary.changed += 1
        except MillraceError as error:
            summary.refused[error.detail] += 1
            summary.examples.setdefault(error.detail, shown)
        if clock.monotonic() > until_s:
            summary.last = id
            break
    return summary
