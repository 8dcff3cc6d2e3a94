"""Conversion of form fields to API requests."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from jobs.errors import Fault, Invalid

M = TypeVar("M", bound=BaseModel)


def number(form: Mapping[str, str], name: str) -> float | int | None:
    """Parses a number; empty is None. Raises Invalid."""
    typed = form.get(name, "").strip().replace(",", "")
    if not typed:
        return None
    try:
        number = float(typed)  # inf for too many digits, which validation rejects
        return int(typed) if typed.isdecimal() and isfinite(number) else number
    except ValueError:
        why = f"{typed[:50]} is not a number"
        raise Invalid(why, faults=[Fault((name,), "invalid", why)]) from None


def validate(model: type[M], values: Mapping[str, Any]) -> M:
    """Validates values like a body of the API. Raises Invalid."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = [Fault(tuple(e["loc"]), e["type"], e["msg"]) for e in error.errors()]
        words = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        raise Invalid(words, faults=faults) from None
