"""Page of one job: progress, slices, items, launches, webhooks; and its verbs."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.data.adaptive_cache import AdaptiveCache
from api.dashboard.data.job_filter import Text
from api.dashboard.pages.jobs import item as items
from api.dashboard.pages.jobs.bulk_actions import APPLICABLE
from api.dashboard.rendering import layout, page_router
from api.dashboard.rendering.timeline import MOST_RUNS, timeline
from api.routes import why
from api.routes.jobs import results, verbs, webhooks
from api.routes.jobs.lookup import JobId, find_job, read_job
from api.routes.jobs.verbs import Verb
from jobs.explain.diagnosis import Diagnosis
from jobs.states import OUTCOMES, TERMINAL, Outcome
from jobs.store.db import Tx
from jobs.store.jobs import detail
from jobs.store.jobs.read import JobRow
from jobs.store.webhooks import deliveries
from jobs.views import jobs

router = page_router.router()
_ITEMS, _SLICES, _LAUNCHES = 50, 100, 12
_Seq = Annotated[int, Query(ge=-1, le=2**31 - 1)]
_Final = Literal["cancel", "delete"]
_rows: AdaptiveCache[Sequence[Any]] = AdaptiveCache()


async def _causes(page: layout.ReaderPage, job_id: JobId) -> list[Diagnosis]:
    return await why.diagnose_job(page.context, page.caller, job_id)


@router.get("/jobs/{job_id}")
def show_job(
    page: layout.ReaderPage,
    job_id: JobId,
    causes: Annotated[list[Diagnosis], Depends(_causes)],
    outcome: Annotated[str, Query(pattern=rf"^({'|'.join(OUTCOMES)})?$")] = "",
    code: Text = "",
    custom_id: Text = "",
    after: _Seq = -1,
) -> Response:
    """Shows a job, and its items by outcome or error code."""
    with read_job(*page.arguments, job_id) as (tx, row):
        job = jobs.job_object(row)
        if custom_id:
            seq = detail.find_seq(tx, row.tenant_id, row.id, custom_id)
            if seq is not None:
                return layout.redirect(f"{layout.PREFIX}/jobs/{job['id']}/items/{seq}")
        details = _details(tx, row)
        pruned = row.items_pruned or row.results_pruned
        item_rows = [] if pruned else detail.items(
            tx, row.tenant_id, row.id, outcome=_outcome(outcome, code), code=code,
            after=after, limit=_ITEMS + 1,
        )  # fmt: skip
    return page.render(
        "job.html", row=row, job=job, causes=causes, fitting=_applicable(job["state"]),
        timeline=timeline(details.pop("runs"), row.read_at), **details, outcomes=OUTCOMES,
        outcome=_outcome(outcome, code) or "", code=code, custom_id=custom_id, after=after,
        items=[items.summary(item) for item in item_rows[:_ITEMS]],
        next=item_rows[_ITEMS - 1].seq if len(item_rows) > _ITEMS else None,
        commands=_commands(page.context.settings.url, job["id"]),
        params=items.pretty(job["params"]), metadata=items.pretty(job["metadata"]),
    )  # fmt: skip


def _commands(url: str, id: str) -> dict[str, str]:
    """Returns commands of a shell for this job, by what they do."""
    key = '-H "Authorization: Bearer $MILLRACE_API_KEY"'
    return {
        "Its state": f"curl {key} {url}/jobs/{id}",
        "Its results": f"curl {key} '{url}/jobs/{id}/results'",
        "Why it stands as it does": f"millrace why {id}",
    }


def _outcome(outcome: str, code: str) -> Outcome | None:
    """Returns the outcome to filter by; an error code implies failed."""
    return "failed" if code else next((name for name in OUTCOMES if name == outcome), None)


def _details(tx: Tx, row: JobRow) -> dict[str, Any]:
    """Loads the parts whose queries grow with the job, cached."""
    job, key = (tx, row.tenant_id, row.id), (row.id, row.generation, row.state)
    queries = {
        "runs": lambda: detail.runs(*job, MOST_RUNS),
        "slices": lambda: detail.slice_states(*job),
        "codes": lambda: detail.error_codes(*job) if row.failed else [],
        "launches": lambda: detail.launches(*job, _LAUNCHES),
    }
    rows: dict[str, Any] = {name: _rows.get((name, *key), query) for name, query in queries.items()}
    return rows | {"deliveries": deliveries.of_job(*job)}


def _applicable(state: Any) -> list[Verb]:
    """Returns the verbs that have an effect in this state."""
    if state in TERMINAL:
        return ["retry", "delete"]
    return [verb for verb in APPLICABLE if state in APPLICABLE[verb]]


@router.get("/jobs/{job_id}/slices")
def show_slices(page: layout.ReaderPage, job_id: JobId, after: _Seq = -1) -> Response:
    """Shows a job's slices."""
    with find_job(page.context, page.caller, job_id) as (tx, row):
        slices = detail.slices(tx, row.tenant_id, row.id, after=after, limit=_SLICES + 1)
    return page.render(
        "slices.html", job=jobs.job_object(row), slices=slices[:_SLICES], after=after,
        next=slices[_SLICES - 1].start if len(slices) > _SLICES else None,
    )  # fmt: skip


@router.get("/jobs/{job_id}/results")
def download_results(
    page: layout.ReaderPage, job_id: JobId, outcome: Outcome | None = None
) -> Response:
    """Sends all current results, as `GET /jobs/{job_id}/results` does."""
    lines = results.get_results(
        *page.arguments, job_id, after=-1, limit=None, outcome=outcome, gaps=True, format="ndjson"
    )
    lines.headers["Content-Disposition"] = f'attachment; filename="{job_id}.ndjson"'
    return lines


@router.get("/jobs/{job_id}/{verb}")
def confirm(page: layout.SubmitterPage, job_id: JobId, verb: _Final) -> Response:
    """Asks before a job is cancelled or deleted."""
    with find_job(page.context, page.caller, job_id) as (_, row):
        return page.render("confirm.html", job=jobs.job_object(row), verb=verb)


@router.post("/jobs/{job_id}/redeliver")
def redeliver(page: layout.SubmitterPage, form: Form, job_id: JobId) -> Response:
    """Sends the latest delivery again."""
    sent = webhooks.redeliver(*page.arguments, job_id)
    notice = f"{sent.type} is being sent to {sent.url} again"
    return layout.redirect(_path(job_id), notice)


@router.post("/jobs/{job_id}/{verb}")
def do(page: layout.SubmitterPage, form: Form, job_id: JobId, verb: Verb) -> Response:
    """Applies a verb."""
    before = verbs.perform(*page.arguments, verb, job_id)
    if verb == "delete":
        return layout.redirect(f"{layout.PREFIX}/jobs", f"{job_id} is deleted")
    return layout.redirect(_path(job_id), _notice(page, job_id, verb, before))


def _notice(page: layout.Page, job_id: str, verb: Verb, before: str) -> str:
    with find_job(page.context, page.caller, job_id) as (_, row):
        now = row.state
    if now == before:
        return f"{verb}: no effect, the job is {now}"
    return f"{verb}: the job was {before} and is {now}"


def _path(job_id: str) -> str:
    return f"{layout.PREFIX}/jobs/{job_id}"
