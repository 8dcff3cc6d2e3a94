"""Sums of usage as JSON and CSV."""

import csv
from decimal import Decimal

from jobs.models.registry import Registry
from jobs.store.billing.usage import UsageRow
from jobs.views.usage import Report

ROWS = [
    UsageRow(("2026-11-20",), "a", "1", 3, 1, 40, 1500, 120, 40, 10, Decimal("0.50")),
    UsageRow(("2026-11-20",), "b", "1", 1, 0, 10, 500, 5, 0, 2, Decimal("0.25")),
    UsageRow(("2026-11-21",), "b", "1", 1, 0, 10, 500, 0, 0, 0, Decimal("0.25")),
]


def report() -> Report:
    return Report(["day"], ROWS, Registry([]))


def test_tokens_of_all_models_of_a_group_are_added_up() -> None:
    first, second = report().as_json()["data"]
    assert first["tokens"] == {"input": 125, "cached": 40, "output": 12}
    assert second["tokens"] == {"input": 0, "cached": 0, "output": 0}
    assert report().as_json()["total"]["tokens"] == first["tokens"]


def test_columns_of_tokens_come_last() -> None:
    lines = [line.strip() for line in report().csv_lines()]
    assert lines[0].endswith(",amount,input_tokens,cached_tokens,output_tokens")
    first, second = csv.DictReader(lines)
    tokens = [first[f"{kind}_tokens"] for kind in ("input", "cached", "output")]
    assert tokens == ["125", "40", "12"]
    assert (second["amount"], second["output_tokens"]) == ("0.25", "0")
