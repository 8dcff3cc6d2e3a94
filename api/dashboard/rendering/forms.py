"""Conversion of form fields to API requests."""

from collections.abc import Mapping
from math import isfinite

from jobs.errors import Fault, Invalid


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
