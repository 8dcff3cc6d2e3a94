"""What a model's use costs, by its entry in the models file; in whatever currency that is.

[model.price]
per_item = 0.001
per_1k_units = 0.02
per_device_s = 0.5
class = { interactive = 2.0, bulk = 0.5 }

Exact: decimals all the way, as they are written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any

from jobs.states import JOB_CLASSES

_RATES = ("per_item", "per_1k_units", "per_device_s")
_MOST = Decimal(10**9)
_MOST_DECIMALS = 12
_ZERO, _ONE = Decimal(0), Decimal(1)
_EXACT = Context(prec=100)  # more digits than a product of two has


@dataclass(frozen=True, slots=True)
class Price:
    """per_item: one that succeeds, or a call; per_1k_units: a thousand of the model's unit, of
    those; per_device_s: a second of device time, failures included; classes: what all of it is
    multiplied by, 1 where a class isn't named."""

    per_item: Decimal = _ZERO
    per_1k_units: Decimal = _ZERO
    per_device_s: Decimal = _ZERO
    classes: Mapping[str, Decimal] = field(default_factory=dict)

    def rates(self, job_class: str) -> tuple[Decimal, Decimal, Decimal]:
        """Of an item, a unit and a microsecond on the device, in this class."""
        factor = self.classes.get(job_class, _ONE)
        return (
            _EXACT.multiply(self.per_item, factor),
            _EXACT.multiply(self.per_1k_units.scaleb(-3), factor),
            _EXACT.multiply(self.per_device_s.scaleb(-6), factor),
        )


FREE = Price()


def read(entry: Any, where: str, problems: list[str]) -> Price:
    """The table of one model; what is wrong with it is added to the problems."""
    if not isinstance(entry, dict):
        problems.append(f"{where}: price must be a table")
        return FREE
    before = len(problems)
    known = (*_RATES, "class")
    problems += [
        f"{where}: unknown key {key!r} in price; there are: {', '.join(known)}"
        for key in entry
        if key not in known
    ]
    rates = {name: _number(entry[name], name, where, problems) for name in _RATES if name in entry}
    classes = _classes(entry.get("class", {}), where, problems)
    return FREE if len(problems) > before else Price(**rates, classes=classes)


def _classes(entry: Any, where: str, problems: list[str]) -> dict[str, Decimal]:
    if not isinstance(entry, dict):
        problems.append(f"{where}: price.class must be a table")
        return {}
    problems += [
        f"{where}: no class {name!r} in price.class; there are: {', '.join(JOB_CLASSES)}"
        for name in entry
        if name not in JOB_CLASSES
    ]
    return {name: _number(value, f"class.{name}", where, problems) for name, value in entry.items()}


def _number(value: Any, name: str, where: str, problems: list[str]) -> Decimal:
    """As it stands in the file: the shortest decimal that is this float."""
    number = Decimal("inf")
    if type(value) in (int, float) and value == value:
        number = Decimal(repr(value))
    if 0 <= number <= _MOST and number == round(number, _MOST_DECIMALS):
        return number
    problems.append(
        f"{where}: price.{name} must be a number from 0 to {_MOST:,}, of at most "
        f"{_MOST_DECIMALS} decimals"
    )
    return _ZERO
