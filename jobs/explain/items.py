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
    findings = [*_retries(about, row), *_stages(about, row, timing, before)]
    return findings or [Diagnosis("item_waits", "info", about, f"it ended as {row.outcome}")]


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


def _stages(about: str, row: ItemRow, timing: ItemTiming, before: EarlierJobs) -> list[Diagnosis]:
    """Returns a finding for each stage that dominates."""
    parts: dict[str, float] = {
        "waiting": (timing.waiting_ms or 0.0) / 1000,
        "preprocess": (timing.preprocess_ms or 0.0) / 1000,
        "queue": (timing.queue_ms or 0.0) / 1000,
        "engine": (timing.engine_ms or 0.0) / 1000,
        "record": (timing.record_ms or 0.0) / 1000,
    }
    total_s = max(sum(parts.values()), 1e-9)
    texts: dict[str, tuple[Code, str, str]] = {
        "waiting": (
            "item_waits",
            f"waiting for a device: {before.in_words()}",
            "more workers in the model's pool; within a tenant, a higher priority goes first",
        ),
        "preprocess": (
            "item_waits",
            "in preprocessing (reading, tokenization), with its whole slice",
            "smaller slices (limits.slice_items); payloads in the blob store take longer to read",
        ),
        "queue": (
            "waiting_for_device",
            "in its lane, behind other work for the device",
            "smaller slices (limits.slice_items) spread a job over more workers",
        ),
        "engine": (
            "slow_model",
            "on the device, in its launch",
            "a faster device, or a smaller limits.max_batch if full launches take long",
        ),
        "record": (
            "recording",
            "waiting for the rest of its slice, which is recorded together",
            "smaller slices (limits.slice_items) are recorded sooner; `millrace why` says if the "
            "database stalls",
        ),
    }
    return [
        Diagnosis(
            texts[part][0],
            "info",
            about,
            f"it spent {duration(took_s)} of {duration(total_s)} ({percent(took_s / total_s)}) "
            f"{texts[part][1]}",
            texts[part][2],
            {"seconds": took_s, "total_s": total_s},
        )
        for part, took_s in sorted(parts.items(), key=lambda part: -part[1])
        if took_s >= _NEGLIGIBLE_S and took_s >= _DOMINANT_SHARE * total_s
    ] or [
        Diagnosis("item_waits", "info", about, f"it took {duration(total_s)}, no stage of it long")
    ]
