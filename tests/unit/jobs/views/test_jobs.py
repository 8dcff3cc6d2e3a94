"""A job as people see it."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from jobs.views.jobs import job_object
from tests.support.cases import each

START = datetime(2026, 1, 1, tzinfo=UTC)


def ended(state: str, **outcomes: int) -> Any:
    """Row of a job of 100 items that ran for ten seconds."""
    counts = dict.fromkeys(("succeeded", "failed", "cancelled", "expired"), 0) | outcomes
    return SimpleNamespace(
        id=uuid4(), name=None, model="echo", version="1", versioning="pinned", state=state,
        job_class="standard", priority=0, params="{}", metadata="{}", labels=None, generation=0,
        total=100, n_running=0, n_recent=0, created_at=START, started_at=START, expires_at=None,
        finished_at=START + timedelta(seconds=10), read_at=START, error=None, source=None,
        target=None, **counts,
    )  # fmt: skip


def test_the_rate_of_an_ended_job_is_that_of_the_items_that_ran() -> None:
    cases = [
        (ended("completed", succeeded=90, failed=10), 10.0),
        (ended("cancelled", succeeded=20, cancelled=80), 2.0),
        (ended("expired", expired=100), None),
    ]
    for (row, rate), case in each(cases):
        with case:
            assert job_object(row)["progress"] == {"items_per_s": rate, "eta_s": None}
