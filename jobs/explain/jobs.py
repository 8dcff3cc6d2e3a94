"""Diagnosis of one job, from its row, its slices, and the errors of its items."""

from collections.abc import Mapping

from jobs import ids
from jobs.explain.diagnosis import Diagnosis
from jobs.explain.formatting import count, duration, percent
from jobs.explain.items import EarlierJobs
from jobs.states import TERMINAL
from jobs.store.jobs.read import JobRow
from jobs.store.monitoring.diagnostics import SliceCounts

QUIET_S = 30.0  # without progress: a running job becomes a warning


def explain_job(
    job: JobRow,
    slices: SliceCounts,
    errors: Mapping[str, int],
    before: EarlierJobs,
) -> list[Diagnosis]:
    """Returns the findings, most important first.

    job: a row of `jobs.store.jobs.read`; slices, errors: from `jobs.store.monitoring.diagnostics`.
    """
    about = f"job:{ids.show('job', job.id)}"
    if job.state in TERMINAL:
        return [*_failures(about, job, errors), _ended(about, job, slices)]
    rules = (_held(about, job), _suspects(about, slices), _postponed(about, slices))
    findings = [one for one in rules if one]
    return [*findings, *_failures(about, job, errors), _progress(about, job, slices, before)]


def _held(about: str, job: JobRow) -> Diagnosis | None:
    why = {
        "validating": (
            "its items are still being read: "
            + (job.transfer_error or "a keeper reads one job after the other"),
            "`millrace job` shows the last error of the transfer; a keeper must run",
        ),
        "paused": ("it is paused: no item is started", "`millrace resume` resumes it"),
        "cancelling": ("it is being cancelled: running launches end, the rest is dropped", ""),
    }.get(job.state)
    return why and Diagnosis("job_held", "info", about, *why)


def _suspects(about: str, slices: SliceCounts) -> Diagnosis | None:
    if not slices.suspect:
        return None
    return Diagnosis(
        "suspect_slices",
        "warning",
        about,
        f"{count(slices.suspect, 'slice')} of it were leased by workers that died "
        f"({count(slices.deaths, 'death')} at most): they run alone, one at a time, and are "
        "split until the failing item is isolated",
        "`millrace why` says how workers died; an item that kills three fails as worker_lost",
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
        f"{count(slices.postponed, 'slice')} wait to be retried, the next in "
        f"{duration(next_s)}: some of their items failed with a transient error",
        "limits.backoff_ms and max_attempts of the model set how soon and how often",
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
            "the items show their errors, as does `millrace results JOB`; once the job has ended, "
            "Retry or `millrace retry JOB` runs them again",
            {"failed": float(failed), "code": most},
        )
    ]


def _ended(about: str, job: JobRow, slices: SliceCounts) -> Diagnosis:
    queued_at = job.queued_at or job.created_at
    total_s = ((job.finished_at or job.read_at) - queued_at).total_seconds()
    waited = ""
    if slices.first_claimed_at and job.started_at:  # set too by an end without a claim
        waited_s = max(0.0, (job.started_at - queued_at).total_seconds())
        waited = (
            f": {duration(waited_s)} until the first claim, then {duration(total_s - waited_s)}"
        )
    words = f"it ended as {job.state} after {duration(total_s)}{waited}"
    return Diagnosis("job_ended", "info", about, words, "", {"total_s": total_s})


def _progress(about: str, job: JobRow, slices: SliceCounts, before: EarlierJobs) -> Diagnosis:
    queued_at = job.queued_at or job.created_at
    waited_s = max(0.0, (job.read_at - queued_at).total_seconds())
    if not slices.leased and slices.ready:
        quiet_s = slices.quiet_s if slices.quiet_s is not None else waited_s
        return Diagnosis(
            "job_waits",
            "warning" if quiet_s >= QUIET_S else "info",
            about,
            f"no worker has claimed one of its {count(slices.ready, 'ready slice')} for "
            f"{duration(quiet_s)}: {before.in_words()}",
            "more workers in the model's pool; within a tenant, a higher priority goes first",
            {"ready": float(slices.ready), "quiet_s": quiet_s},
        )
    quiet_s = slices.quiet_s or 0.0
    quiet = quiet_s >= QUIET_S
    words = (
        f"{count(slices.leased, 'slice')} of it leased by workers, {slices.ready} ready; "
        f"queued {duration(waited_s)} ago"
    )
    if quiet:
        words += f", and no slice ended for {duration(quiet_s)}"
    return Diagnosis("job_runs", "warning" if quiet else "info", about, words)
