"""What was used, as clients see it: JSON and CSV of the ledger's sums."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from sqlalchemy import RowMapping

from jobs.models.registry import Registry
from jobs.store.billing.usage import By


@dataclass(slots=True)
class Sum:
    """units: by their name; two models may count different things."""

    succeeded: int = 0
    failed: int = 0
    units: dict[str, int] = field(default_factory=dict)
    device_us: int = 0
    amount: Decimal = Decimal(0)

    def add(self, row: RowMapping, unit: str) -> None:
        self.succeeded += int(row["succeeded"])
        self.failed += int(row["failed"])
        self.units[unit] = self.units.get(unit, 0) + int(row["units"])
        self.device_us += int(row["device_us"])
        self.amount += row["amount"]

    def as_json(self) -> dict[str, Any]:
        return {
            "succeeded": self.succeeded,
            "failed": self.failed,
            "units": self.units,
            "device_ms": self.device_us / 1000,
            "amount": plain(self.amount),
        }


def plain(amount: Decimal) -> str:
    """Exact, without an exponent and without zeros at its end."""
    digits = format(amount, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


class Report:
    """rows: of `jobs.store.billing.usage`, in the order of `by`."""

    def __init__(self, by: Sequence[By], rows: Iterable[RowMapping], models: Registry) -> None:
        self._by, self.total = by, Sum()
        self._groups: dict[tuple[str, ...], Sum] = {}
        for row in rows:
            unit = models.unit(row["of_model"], row["of_version"])
            key = tuple(row[f"by_{name}"] for name in by)
            self._groups.setdefault(key, Sum()).add(row, unit)
            self.total.add(row, unit)

    def as_json(self) -> dict[str, Any]:
        data = [
            dict(zip(self._by, key, strict=True)) | sum.as_json()
            for key, sum in self._groups.items()
        ]
        return {"data": data, "total": self.total.as_json()}

    def csv_lines(self) -> Iterator[str]:
        """A header, and a line for each group; a column for each unit."""
        units = sorted(self.total.units)
        yield _line([*self._by, "succeeded", "failed", *units, "device_ms", "amount"])
        for key, sum in self._groups.items():
            counted = [sum.units.get(unit, 0) for unit in units]
            ends = sum.device_us / 1000, plain(sum.amount)
            yield _line([*key, sum.succeeded, sum.failed, *counted, *ends])


def _line(values: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(values)
    return out.getvalue()
