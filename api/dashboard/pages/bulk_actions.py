"""One verb for all jobs that a filter finds: shown and counted first, then done one by one.

What is done is what was confirmed: jobs that came later are not in it, and one that left the
filter's states before its turn is left alone. Each has its transaction, its checks and its note,
as if it had been the only one.
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

from fastapi import Path, Query, Request, Response

from api.context import Context, Shared
from api.dashboard.auth.viewer import Form, Submitting, Viewer
from api.dashboard.data.job_filter import Asked, JobFilter, whose
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
PATIENCE_S = 20.0
"""One request goes on for so long; what is left then is gone on with by another."""
MOST_AT_WORK = 4
"""Of an api process at a time, and one of a tenant: each keeps a thread and a connection."""

_at_work: set[str] = set()
_lock = Lock()

FITTING: dict[Bulk, frozenset[JobState]] = {
    "cancel": frozenset(JOB_STATES) - TERMINAL - {"cancelling"},
    "pause": frozenset(s for s in JOB_STATES if "paused" in TRANSITIONS[s]),
    "resume": frozenset({"paused"}),
    "retry": TERMINAL,
}
"""The states that each verb changes something in."""


class _Changed(MillraceError):
    """Since it was found it went on to another state."""


@dataclass(slots=True)
class Summary:
    """What became of them. changed: were in another state when their turn came; refused: by why;
    last: the id of the last one that had its turn, where not all had."""

    done: int = 0
    changed: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    last: UUID | None = None


@router.get("/jobs/all/{verb}")
def confirm(
    request: Request, shared: Shared, viewer: Submitting, verb: _Verb, asked: Asked
) -> Response:
    """How many it would be, and some of them."""
    return _shown(request, shared, viewer, verb, asked)


@router.post("/jobs/all/{verb}")
def do(
    request: Request, shared: Shared, viewer: Submitting, form: Form, verb: _Verb, asked: Asked,
    after: Annotated[str, Query()] = "",
) -> Response:  # fmt: skip
    made_before, confirmed = _confirmed(form)
    tenant, filter = whose(viewer, asked.tenant), _fitting(asked.filter, verb)
    last = ids.parse(PREFIXES, after)
    with _turn_of(viewer.caller.tenant):
        if last is None and _count(shared, tenant, filter, made_before) > confirmed:
            return _shown(request, shared, viewer, verb, asked, confirmed)
        found = _each(shared, tenant, filter, made_before, last)
        summary = _perform(found, partial(_one, request, shared, viewer, verb, filter))
    return layout.page(
        request, "many_done.html", viewer=viewer, verb=verb, asked=asked, summary=summary,
        made_before=form["made_before"], count=confirmed,
        after=ids.show("job", summary.last) if summary.last else "",
    )  # fmt: skip


@contextmanager
def _turn_of(tenant: str) -> Iterator[None]:
    """Raises Overloaded."""
    with _lock:
        if tenant in _at_work or len(_at_work) >= MOST_AT_WORK:
            raise Overloaded("many jobs are being changed already; go on in a moment")
        _at_work.add(tenant)
    try:
        yield
    finally:
        with _lock:
            _at_work.remove(tenant)


def _confirmed(form: Mapping[str, str]) -> tuple[datetime, int]:
    """(until when they came, how many there were). Raises Malformed."""
    try:
        count = min(int(form["count"]), MOST_COUNTED + 1)
        return datetime.fromisoformat(form["made_before"]), count
    except (KeyError, ValueError):
        raise Malformed("the form doesn't say what was confirmed; load the page again") from None


def _fitting(filter: Filter, verb: Bulk) -> Filter:
    """Of these, those that the verb does something to. Without a state it would mean all."""
    states = tuple(s for s in filter.states or JOB_STATES if s in FITTING[verb])
    return replace(filter, states=states, unsuccessful=filter.unsuccessful or verb == "retry")


def _count(shared: Context, tenant: str, filter: Filter, made_before: datetime) -> int:
    with shared.acting(tenant) as tx:
        return sum(search.counts(tx, tenant, filter, made_before).values()) * bool(filter.states)


def _shown(
    request: Request, shared: Context, viewer: Viewer, verb: Bulk, asked: JobFilter,
    confirmed: int | None = None,
) -> Response:  # fmt: skip
    """confirmed: so many were, and now there are more."""
    tenant, filter = whose(viewer, asked.tenant), _fitting(asked.filter, verb)
    with shared.acting(tenant) as tx:
        now = search.now(tx)
        all = search.counts(tx, tenant, asked.filter, now)
        counts = search.counts(tx, tenant, filter, now) if filter.states else {}
        rows = search.page(tx, tenant, filter, limit=_EXAMPLES) if filter.states else []
    count = sum(counts.values())
    return layout.page(
        request, "many.html", viewer=viewer, verb=verb, asked=asked, counts=counts, count=count,
        left_alone={s: n - counts.get(s, 0) for s, n in all.items() if n > counts.get(s, 0)},
        is_exact=count <= MOST_COUNTED, jobs=[(row, jobs.job_object(row)) for row in rows],
        made_before=now.isoformat(), as_of=now, confirmed=confirmed,
    )  # fmt: skip


def _each(
    shared: Context, tenant: str, filter: Filter, made_before: datetime, after: UUID | None
) -> Iterator[UUID]:
    """Those that are left when their turn comes, the newest first."""
    while filter.states:
        with shared.acting(tenant) as tx:
            found = search.matching_ids(tx, tenant, filter, made_before, after=after, limit=_STEP)
        yield from found
        if len(found) < _STEP:
            return
        after = found[-1]


def _one(
    request: Request, shared: Context, viewer: Viewer, verb: Bulk, filter: Filter, id: str
) -> None:
    def check(before: str) -> None:
        if before not in filter.states:
            raise _Changed(before)

    verbs.perform(request, shared, viewer.caller, verb, id, check)


def _perform(found: Iterator[UUID], act: "partial[None]") -> Summary:
    """Until all had their turn, or the time is up."""
    summary, until_s = Summary(), clock.monotonic() + PATIENCE_S
    for id in found:
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
