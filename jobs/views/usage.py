"""JSON and CSV of the ledger's sums."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from jobs.models.registry import Registry
from jobs.store.billing.usage import By, UsageRow
from jobs.views.device_cost import DevicePrice

_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")


@dataclass(slots=True)
class Sum:
    """Usage of one group, all its models together."""

    succeeded: int = 0  #: items and calls that succeeded
    failed: int = 0  #: items and calls that failed
    units: dict[str, int] = field(default_factory=dict)  #: by name: models count different units
    device_us: int = 0  #: device time, µs
    input_tokens: int = 0  #: tokens of prompts, of models that generate
    cached_tokens: int = 0  #: of those, cached ones
    output_tokens: int = 0  #: generated tokens
    amount: Decimal = Decimal(0)  #: price

    def add(self, row: UsageRow, unit: str) -> None:
        """Adds one model's usage. unit: name of its units."""
        self.succeeded += int(row.succeeded)
        self.failed += int(row.failed)
        self.units[unit] = self.units.get(unit, 0) + int(row.units)
        self.device_us += int(row.device_us)
        self.input_tokens += int(row.input_tokens)
        self.cached_tokens += int(row.cached_tokens)
        self.output_tokens += int(row.output_tokens)
        self.amount += row.amount

    def as_json(self) -> dict[str, Any]:
        """The sum as JSON object."""
        return {
            "succeeded": self.succeeded,
            "failed": self.failed,
            "units": self.units,
            "device_ms": self.device_us / 1000,
            "tokens": {
                "input": self.input_tokens,
                "cached": self.cached_tokens,
                "output": self.output_tokens,
            },
            "amount": plain(self.amount),
        }


def plain(amount: Decimal) -> str:
    """Writes an amount exactly, without an exponent and without trailing zeros."""
    digits = format(amount, "f")
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


class Report:
    """Usage of a time by groups, in the order of its rows.

    prices: of devices by name of a model; groups of one model have the cost of a million items
    there."""

    def __init__(
        self,
        by: Sequence[By],
        rows: Iterable[UsageRow],
        models: Registry,
        prices: Mapping[str, DevicePrice] | None = None,
    ) -> None:
        self._by, self.total, self._prices = by, Sum(), prices or {}
        self._groups: dict[tuple[str, ...], Sum] = {}
        for row in rows:
            unit = models.unit(row.model, row.version)
            self._groups.setdefault(row.group, Sum()).add(row, unit)
            self.total.add(row, unit)

    def as_json(self) -> dict[str, Any]:
        """Groups and their total as JSON object."""
        data = [
            dict(zip(self._by, key, strict=True)) | sum.as_json() | self._cost(key, sum)
            for key, sum in self._groups.items()
        ]
        return {"data": data, "total": self.total.as_json()}

    def _cost(self, key: tuple[str, ...], sum: Sum) -> dict[str, Any]:
        if "model" not in self._by:
            return {}
        name, _, _ = key[self._by.index("model")].partition(":")  # an adapter runs on its base
        price = self._prices.get(name)
        cost = price.per_million(sum.device_us, sum.succeeded) if price else None
        return {"device_cost_per_million": cost} if cost else {}

    def csv_lines(self) -> Iterator[str]:
        """Yields a header and a line for each group, with a column for each unit."""
        units = sorted(self.total.units)
        yield _line([*self._by, "succeeded", "failed", *units, "device_ms", "amount", *_TOKENS])
        for key, sum in self._groups.items():
            counted = [sum.units.get(unit, 0) for unit in units]
            ends = sum.device_us / 1000, plain(sum.amount)
            tokens = sum.input_tokens, sum.cached_tokens, sum.output_tokens
            yield _line([*key, sum.succeeded, sum.failed, *counted, *ends, *tokens])


def _line(values: Sequence[Any]) -> str:
    out = io.StringIO()
    csv.writer(out).writerow(values)
    return out.getvalue()
