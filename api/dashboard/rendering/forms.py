"""What people type into forms, as the API would take it."""

from collections.abc import Mapping
from math import isfinite
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from jobs.errors import Fault, Invalid

M = TypeVar("M", bound=BaseModel)


def number(form: Mapping[str, str], name: str) -> float | int | None:
    """What is empty is None; whole where it is written so. Raises Invalid."""
    typed = form.get(name, "").strip().replace(",", "")
    if not typed:
        return None
    try:
        number = float(typed)  # of too many digits: inf, which nothing takes
        return int(typed) if typed.isdecimal() and isfinite(number) else number
    except ValueError:
        why = f"{typed[:50]} is no number"
        raise Invalid(why, faults=[Fault((name,), "invalid", why)]) from None


def checked(model: type[M], values: Mapping[str, Any]) -> M:
    """By the same rules as a body of the API. Raises Invalid, which says what is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        faults = [Fault(tuple(e["loc"]), e["type"], e["msg"]) for e in error.errors()]
        words = "; ".join(f"{'.'.join(map(str, f.loc))}: {f.message}" for f in faults)
        raise Invalid(words, faults=faults) from None
