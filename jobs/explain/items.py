"""Why one item took as long as it did, or isn't done: from its rows."""

from dataclasses import dataclass

import orjson

from jobs import ids
from jobs.explain.diagnosis import Code, Diagnosis
from jobs.explain.timing import ItemTiming
from jobs.explain.words import count, percent, span
from jobs.store.jobs.detail import ItemRow
from jobs.store.jobs.read import JobRow

_MOST_OF_IT = 0.4
_NOTHING_S = 0.05
"""What is over so soon has no cause worth telling."""


@dataclass(frozen=True, slots=True)
class Before:
    """Jobs for the same model that were open when this one was queued. others: of other tenants;
    None: who asks isn't to know."""

    own: int
    others: int | None

    def in_words(self) -> str:
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


def explain_item(job: JobRow, row: ItemRow, before: Before) -> list[Diagnosis]:
    """What is to be said of it, the most telling first."""
    about = f"job:{ids.show('job', job.id)}"
    timing = ItemTiming.of(row)
    if row.outcome is None:
        return _of_open(about, job, row, timing, before)
    found = [*_retries(about, row), *_where(about, row, timing, before)]
    return found or [Diagnosis("item_waits", "info", about, f"it ended as {row.outcome}")]


def _of_open(
    about: str,
    job: JobRow,
    row: ItemRow,
    timing: ItemTiming,
    before: Before,
) -> list[Diagnosis]:
    waited_s = (timing.waiting_ms or 0.0) / 1000
    if job.state in ("paused", "cancelling", "validating"):
        words = f"its job is {job.state}: nothing of it is started"
        return [
            Diagnosis(
                "job_held", "info", about, words, "`millrace resume` goes on with a paused job"
            )
        ]
    retries = _retries(about, row)
    if row.slice_state == "leased":
        words = (
            f"it is in the hands of worker {row.worker}, after {span(waited_s)}: read, "
            "waiting in its lane, or in a launch"
        )
        return [*retries, Diagnosis("item_waits", "info", about, words)]
    if row.suspect:
        words = (
            f"a worker died with its slice in hand ({count(row.deaths, 'death')}): it runs "
            "alone now, in turns with the usual work"
        )
        advice = "`millrace why` says how workers die; this item may be the reason"
        return [*retries, Diagnosis("suspect_slices", "warning", about, words, advice)]
    if retries:
        return retries
    words = f"it has waited {span(waited_s)} for a device: {before.in_words()}"
    advice = "more workers of the model's pool; a higher priority goes first within a tenant"
    return [Diagnosis("item_waits", "info", about, words, advice, {"waited_s": waited_s})]


def _retries(about: str, row: ItemRow) -> list[Diagnosis]:
    failures = int(row.failures or 0)
    if not failures:
        return []
    last = orjson.loads(row.last_failure or "{}")
    words = (
        f"it failed {count(failures, 'time')} for now, last as {last.get('code', 'an error')}, and "
        f"was tried again after {span(row.backoff_s or 0.0)}"
    )
    advice = "limits.max_attempts and backoff_ms of the model say how often and how soon"
    return [
        Diagnosis("item_retried", "warning", about, words, advice, {"failures": float(failures)})
    ]


def _where(about: str, row: ItemRow, timing: ItemTiming, before: Before) -> list[Diagnosis]:
    """Each part that took most of the time, and what it says."""
    parts: dict[str, float] = {
        "waiting": (timing.waiting_ms or 0.0) / 1000,
        "preprocess": (timing.preprocess_ms or 0.0) / 1000,
        "queue": (timing.queue_ms or 0.0) / 1000,
        "engine": (timing.engine_ms or 0.0) / 1000,
        "record": (timing.record_ms or 0.0) / 1000,
    }
    total_s = max(sum(parts.values()), 1e-9)
    said: dict[str, tuple[Code, str, str]] = {
        "waiting": (
            "item_waits",
            f"waiting for a device: {before.in_words()}",
            "more workers of the model's pool; a higher priority goes first within a tenant",
        ),
        "preprocess": (
            "item_waits",
            "to be read and prepared (tokenized), with all of its slice",
            "smaller slices (limits.slice_items); payloads in the blob store take longer to read",
        ),
        "queue": (
            "waiting_for_device",
            "in its lane: what came before it had the device",
            "smaller slices (limits.slice_items) spread a job over more workers",
        ),
        "engine": (
            "slow_model",
            "on the device, in its launch",
            "a faster device, or a smaller limits.max_batch where full launches take long",
        ),
        "record": (
            "recording",
            "for the rest of its slice to be done and recorded together",
            "smaller slices (limits.slice_items) are recorded sooner; `millrace why` says whether "
            "the database stalls",
        ),
    }
    return [
        Diagnosis(
            said[part][0],
            "info",
            about,
            f"it spent {span(took_s)} of {span(total_s)} ({percent(took_s / total_s)}) "
            f"{said[part][1]}",
            said[part][2],
            {"seconds": took_s, "total_s": total_s},
        )
        for part, took_s in sorted(parts.items(), key=lambda part: -part[1])
        if took_s >= _NOTHING_S and took_s >= _MOST_OF_IT * total_s
    ] or [Diagnosis("item_waits", "info", about, f"it took {span(total_s)}, no part of it long")]
