"""Why a job stands where it does: from its row, its slices, and what its model suffers from."""

from collections.abc import Mapping

from jobs import ids
from jobs.explain.diagnosis import Diagnosis
from jobs.explain.items import Before
from jobs.explain.words import count, percent, span
from jobs.states import TERMINAL
from jobs.store.jobs.read import JobRow
from jobs.store.monitoring.diagnostics import SliceCounts

QUIET_S = 30.0
"""A job that runs and of which nothing ended for so long is worth a word."""


def explain_job(
    job: JobRow,
    slices: SliceCounts,
    errors: Mapping[str, int],
    before: Before,
) -> list[Diagnosis]:
    """What is to be said of it, the most telling first. slices,
    errors: what `jobs.store.monitoring.diagnostics` says of it."""
    about = f"job:{ids.show('job', job.id)}"
    if job.state in TERMINAL:
        return [*_failures(about, job, errors), _ended(about, job, slices)]
    rules = (_held(about, job), _suspects(about, slices), _postponed(about, slices))
    found = [one for one in rules if one]
    return [*found, *_failures(about, job, errors), _stands(about, job, slices, before)]


def _held(about: str, job: JobRow) -> Diagnosis | None:
    why = {
        "validating": (
            "its items are still being read: "
            + (job.transfer_error or "a keeper does that, one job after the other"),
            "`millrace job` shows the last error of the transfer; a keeper must run",
        ),
        "paused": ("it was paused: nothing of it is started", "`millrace resume` goes on with it"),
        "cancelling": ("it is being cancelled: its launches end, the rest is written off", ""),
    }.get(job.state)
    return why and Diagnosis("job_held", "info", about, *why)


def _suspects(about: str, slices: SliceCounts) -> Diagnosis | None:
    if not slices.suspect:
        return None
    return Diagnosis(
        "suspect_slices",
        "warning",
        about,
        f"{count(slices.suspect, 'slice')} of it were in the hands of workers that died "
        f"({count(slices.deaths, 'death')} at most): they run alone, one at a time, and are "
        "split until the guilty item stands alone",
        "`millrace why` says how workers die; an item that kills three fails as worker_lost",
        {"suspect": float(slices.suspect), "deaths": float(slices.deaths)},
    )


def _postponed(about: str, slices: SliceCounts) -> Diagnosis | None:
    if not slices.postponed:
        return None
    next_s = max(0.0, slices.next_s or 0.0)
    return Diagnosis(
        "item_retried",
        "warning",
        about,
        f"{count(slices.postponed, 'slice')} wait to be tried again, the next in "
        f"{span(next_s)}: some of their items failed for now",
        "limits.backoff_ms and max_attempts of the model say how soon and how often",
        {"postponed": float(slices.postponed), "next_s": next_s},
    )


def _failures(about: str, job: JobRow, errors: Mapping[str, int]) -> list[Diagnosis]:
    if not errors:
        return []
    failed, most = int(job.failed), next(iter(errors))
    share = failed / max(1, job.total)
    return [
        Diagnosis(
            "model_fails",
            "warning",
            about,
            f"{count(failed, 'item')} of {job.total:,} failed ({percent(share)}), most as "
            f"{most or 'an unnamed error'}",
            "its items have the errors (`millrace results JOB` prints them too); once the job has "
            "ended, Retry, or `millrace retry JOB`, runs them again",
            {"failed": float(failed), "code": most},
        )
    ]


def _ended(about: str, job: JobRow, slices: SliceCounts) -> Diagnosis:
    queued_at = job.queued_at or job.created_at
    total_s = ((job.finished_at or job.read_at) - queued_at).total_seconds()
    waited = ""
    if slices.first_claimed_at and job.started_at:  # which who ends it unclaimed sets too
        waited_s = max(0.0, (job.started_at - queued_at).total_seconds())
        waited = (
            f": {span(waited_s)} until its first slice was claimed, then {span(total_s - waited_s)}"
        )
    words = f"it ended as {job.state} after {span(total_s)}{waited}"
    return Diagnosis("job_ended", "info", about, words, "", {"total_s": total_s})


def _stands(about: str, job: JobRow, slices: SliceCounts, before: Before) -> Diagnosis:
    queued_at = job.queued_at or job.created_at
    waited_s = max(0.0, (job.read_at - queued_at).total_seconds())
    if not slices.leased and slices.ready:
        quiet_s = slices.quiet_s if slices.quiet_s is not None else waited_s
        return Diagnosis(
            "job_waits",
            "warning" if quiet_s >= QUIET_S else "info",
            about,
            f"none of its {count(slices.ready, 'slice')} that could be claimed is in hand, for "
            f"{span(quiet_s)}: {before.in_words()}",
            "more workers of the model's pool; a higher priority goes first within a tenant",
            {"ready": float(slices.ready), "quiet_s": quiet_s},
        )
    quiet_s = slices.quiet_s or 0.0
    quiet = quiet_s >= QUIET_S
    words = (
        f"{count(slices.leased, 'slice')} of it in workers' hands, {slices.ready} wait to be "
        f"claimed; queued {span(waited_s)} ago"
    )
    if quiet:
        words += f", and no slice ended for {span(quiet_s)}"
    return Diagnosis("job_runs", "warning" if quiet else "info", about, words)
