"""A job as people see it, and sums of usage as JSON and CSV."""

import csv
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from jobs.models.registry import Registry
from jobs.store.billing.usage import UsageRow
from jobs.views.jobs import job_object
from jobs.views.usage import Report
from tests.support.cases import each

START = datetime(2026, 1, 1, tzinfo=UTC)


def ended(state: str, **outcomes: int) -> Any:
    """Row of a job of 100 items that ran for ten seconds."""
    counts = dict.fromkeys(("succeeded", "failed", "cancelled", "expired"), 0) | outcomes
    return SimpleNamespace(
        id=uuid4(), name=None, model="echo", version="1", versioning="pinned", state=state,
        job_class="standard", priority=0, params="{}", metadata="{}", labels=None, generation=0,
        total=100, n_running=0, n_recent=0, truncated=0, created_at=START, started_at=START,
        expires_at=None, finished_at=START + timedelta(seconds=10), read_at=START, error=None,
        source=None, target=None, **counts,
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


ROWS = [
    UsageRow(("2026-11-20",), "a", "1", 3, 1, 40, 1500, 120, 40, 10, Decimal("0.50")),
    UsageRow(("2026-11-20",), "b", "1", 1, 0, 10, 500, 5, 0, 2, Decimal("0.25")),
    UsageRow(("2026-11-21",), "b", "1", 1, 0, 10, 500, 0, 0, 0, Decimal("0.25")),
]


def report() -> Report:
    return Report(["day"], ROWS, Registry([]))


def test_tokens_of_all_models_of_a_group_are_added_up_and_their_columns_come_last() -> None:
    first, second = report().as_json()["data"]
    assert first["tokens"] == {"input": 125, "cached": 40, "output": 12}
    assert second["tokens"] == {"input": 0, "cached": 0, "output": 0}
    assert report().as_json()["total"]["tokens"] == first["tokens"]
    lines = [line.strip() for line in report().csv_lines()]
    assert lines[0].endswith(",amount,input_tokens,cached_tokens,output_tokens")
    first, second = csv.DictReader(lines)
    tokens = [first[f"{kind}_tokens"] for kind in ("input", "cached", "output")]
    assert tokens == ["125", "40", "12"]
    assert (second["amount"], second["output_tokens"]) == ("0.25", "0")
