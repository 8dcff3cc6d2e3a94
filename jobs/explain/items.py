"""Diagnosis of one item, from its rows: its latency, or what it waits for."""

from dataclasses import dataclass

import orjson

from jobs import ids
from jobs.explain.diagnosis import Code, Diagnosis
from jobs.explain.formatting import count, duration, percent
from jobs.explain.timing import ItemTiming
from jobs.store.jobs.detail import ItemRow
from jobs.store.jobs.read import JobRow

_DOMINANT_SHARE = 0.4  # of the total time
_NEGLIGIBLE_S = 0.05


@dataclass(frozen=True, slots=True)
class EarlierJobs:
    """Number of open jobs of the same model when this one was queued."""

    own: int
    others: int | None  #: of other tenants; None: the caller may not know

    def in_words(self) -> str:
        """Returns a phrase for findings."""
        if self.others is None:
            own = count(self.own, "earlier job") + " of its own tenant" if self.own else ""
            return f"{own or 'no earlier job of its own tenant'} and other work before it"
        if not self.own + self.others:
            return "no earlier job for this model before it"
        both = (
            f"{self.own} of its own tenant" * bool(self.own),
            f"{self.others} of other tenants" * bool(self.others),
        )
        words = " and ".join(filter(None, both))
        return f"{count(self.own + self.others, 'earlier job')} before it ({words})"


def explain_item(job: JobRow, row: ItemRow, before: EarlierJobs) -> list[Diagnosis]:
    """Returns the findings, most important first. job: its job's row; row: of
    `jobs.store.jobs.read.item`."""
    about = f"job:{ids.show('job', job.id)}"
    timing = ItemTiming.from_row(row)
    if row.outcome is None:
        return _open(about, job, row, timing, before)
    return [*_retries(about, row), *_stages(about, timing, before)]


def _open(
    about: str,
    job: JobRow,
    row: ItemRow,
    timing: ItemTiming,
    before: EarlierJobs,
) -> list[Diagnosis]:
    waited_s = (timing.waiting_ms or 0.0) / 1000
    if job.state in ("paused", "cancelling", "validating"):
        words = f"its job is {job.state}: no item is started"
        return [
            Diagnosis("job_held", "info", about, words, "`millrace resume` resumes a paused job")
        ]
    retries = _retries(about, row)
    if row.slice_state == "leased":
        words = (
            f"worker {row.worker} claimed it {duration(waited_s)} after it was queued: it is in "
            "preprocessing, in its lane, or in a launch"
        )
        return [*retries, Diagnosis("item_waits", "info", about, words)]
    if row.suspect:
        words = (
            f"a worker died while it ran its slice ({count(row.deaths, 'death')}): the slice "
            "runs alone now, alternating with other work"
        )
        advice = "`millrace why` says how workers died; this item may be the cause"
        return [*retries, Diagnosis("suspect_slices", "warning", about, words, advice)]
    if retries:
        return retries
    words = f"it has waited {duration(waited_s)} for a device: {before.in_words()}"
    advice = "more workers in the model's pool; within a tenant, a higher priority goes first"
    return [Diagnosis("item_waits", "info", about, words, advice, {"waited_s": waited_s})]


def _retries(about: str, row: ItemRow) -> list[Diagnosis]:
    failures = int(row.failures or 0)
    if not failures:
        return []
    last = orjson.loads(row.last_failure or "{}")
    words = (
        f"it failed {count(failures, 'time')}, last as {last.get('code', 'an error')}, and was "
        f"retried after {duration(row.backoff_s or 0.0)}"
    )
    advice = "limits.max_attempts and backoff_ms of the model set how often and how soon"
    return [
        Diagnosis("item_retried", "warning", about, words, advice, {"failures": float(failures)})
    ]


def _stages(about: str, timing: ItemTiming, before: EarlierJobs) -> list[Diagnosis]:
    """Returns a finding for each stage that dominates."""
    parts: list[tuple[float | None, Code, str, str]] = [
        (
            timing.waiting_ms,
            "item_waits",
            f"waiting for a device: {before.in_words()}",
            "more workers in the model's pool; within a tenant, a higher priority goes first",
        ),
        (
            timing.preprocess_ms,
            "item_waits",
            "in preprocessing (reading, tokenization), with its whole slice",
            "smaller slices (limits.slice_items); payloads in the blob store take longer to read",
        ),
        (
            timing.queue_ms,
            "waiting_for_device",
            "in its lane, behind other work for the device",
            "smaller slices (limits.slice_items, below 1000) spread a job over more workers",
        ),
        (
            timing.engine_ms,
            "slow_model",
            "on the device, in its launch",
            "a faster device, or a smaller limits.max_batch if full launches take long",
        ),
        (
            timing.record_ms,
            "recording",
            "waiting for the rest of its slice, which is recorded together",
            "smaller slices (limits.slice_items) are recorded sooner; `millrace why` says if the "
            "database stalls",
        ),
    ]
    total_s = max(sum((ms or 0.0) / 1000 for ms, *_ in parts), 1e-9)
    findings = []
    for ms, code, stage, advice in sorted(parts, key=lambda part: -(part[0] or 0.0)):
        took_s = (ms or 0.0) / 1000
        if took_s >= max(_NEGLIGIBLE_S, _DOMINANT_SHARE * total_s):
            share = f"{duration(took_s)} of {duration(total_s)} ({percent(took_s / total_s)})"
            evidence = {"seconds": took_s, "total_s": total_s}
            words = f"it spent {share} {stage}"
            findings.append(Diagnosis(code, "info", about, words, advice, evidence))
    words = f"it took {duration(total_s)}, no stage of it long"
    return findings or [Diagnosis("item_waits", "info", about, words)]
