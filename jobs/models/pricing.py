"""Price of a model's use, by its entry in the models file; the currency is the operator's.

[model.price]
per_item = 0.001
per_1k_units = 0.02
per_device_s = 0.5
per_1k_input_tokens = 0.15
per_1k_cached_tokens = 0.075
per_1k_output_tokens = 0.6
class = { interactive = 2.0, bulk = 0.5 }

Exact: decimals all the way, as they are written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Annotated, Any, NamedTuple, cast

from pydantic import BeforeValidator, ConfigDict, Field

from jobs.states import JobClass

_MOST = Decimal(10**9)
_MOST_DECIMALS = 12
_ZERO, _ONE = Decimal(0), Decimal(1)
_EXACT = Context(prec=100)  # more digits than a product of two has


def _exact(value: Any) -> Decimal:
    """Converts a float to the shortest decimal that is this float: as the file has it."""
    if type(value) in (int, float) and value == value:
        number = Decimal(repr(value))
        if 0 <= number <= _MOST and number == round(number, _MOST_DECIMALS):
            return number
    raise ValueError(f"must be a number from 0 to {_MOST:,}, of at most {_MOST_DECIMALS} decimals")


_Rate = Annotated[Decimal, BeforeValidator(_exact)]


class Rates(NamedTuple):
    """Price of one of each, in one class."""

    item: Decimal
    unit: Decimal
    device_us: Decimal
    input_token: Decimal  #: that wasn't cached
    cached_token: Decimal
    output_token: Decimal


@dataclass(frozen=True, slots=True)
class Price:
    """Rates of one model."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    per_item: _Rate = _ZERO  #: of an item that succeeded, or a call
    per_1k_units: _Rate = _ZERO  #: of a thousand of the model's units, of those
    per_device_s: _Rate = _ZERO  #: of a second on the device, failures included
    per_1k_input_tokens: _Rate = _ZERO  #: of a thousand tokens of prompts that weren't cached
    #: of a thousand cached ones; None: as of those that weren't
    per_1k_cached_tokens: _Rate | None = None
    per_1k_output_tokens: _Rate = _ZERO  #: of a thousand generated tokens
    #: factor for all rates, by class; 1 where a class isn't named
    classes: Annotated[Mapping[JobClass, _Rate], Field(alias="class")] = field(default_factory=dict)

    def rates(self, job_class: str) -> Rates:
        """Returns the rates in this class."""
        factor = cast(Mapping[str, Decimal], self.classes).get(job_class, _ONE)
        cached = self.per_1k_cached_tokens
        return Rates(
            _EXACT.multiply(self.per_item, factor),
            _EXACT.multiply(self.per_1k_units.scaleb(-3), factor),
            _EXACT.multiply(self.per_device_s.scaleb(-6), factor),
            _EXACT.multiply(self.per_1k_input_tokens.scaleb(-3), factor),
            _EXACT.multiply(
                (self.per_1k_input_tokens if cached is None else cached).scaleb(-3), factor
            ),
            _EXACT.multiply(self.per_1k_output_tokens.scaleb(-3), factor),
        )


FREE = Price()
