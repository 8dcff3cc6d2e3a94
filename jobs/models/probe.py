"""Known answers of a version: inputs, and the outputs that it must have for them.

They are recorded once, with the version, and checked by each worker that has loaded it, before it
takes anything.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from math import inf, isclose, isfinite
from typing import Annotated, Any

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from jobs.problems import described

_SHOWN = 120  # characters of a value in a message


@dataclass(frozen=True, slots=True)
class Probe:
    """Inputs with their known outputs."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    inputs: Annotated[Sequence[Any], Field(min_length=1)]
    outputs: Sequence[Any]  #: one for each input
    #: how far numbers with a fraction may be apart, relative to the larger and to 1
    tolerance: Annotated[float, Field(ge=0, le=1)] = 0.001
    params: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str) -> "Probe":
        """Reads a recorded probe. Raises ValueError."""
        try:
            probe: Probe = _adapter().validate_json(text)
        except ValidationError as error:
            raise ValueError("; ".join(described(error, Probe))) from error
        if len(probe.inputs) != len(probe.outputs):
            raise ValueError("a probe has one output for each input")
        return probe

    def as_json(self) -> str:
        """Returns the probe as it is recorded."""
        return json.dumps(asdict(self), ensure_ascii=False)

    def problem(self, outputs: Sequence[Any]) -> str:
        """Returns how these outputs differ from the known ones, or an empty text."""
        if len(outputs) != len(self.outputs):
            return f"it has {len(outputs)} outputs, {len(self.outputs)} are known"
        for n, (known, given) in enumerate(zip(self.outputs, outputs, strict=True), start=1):
            differences = _differences(known, given, self.tolerance)
            _, worst = max(differences, key=lambda one: one[0], default=(0.0, ""))
            if worst:
                return (
                    f"the answer to input {n} is another one: {worst} (tolerance "
                    f"{self.tolerance:g})"
                )
        return ""


@cache
def _adapter() -> TypeAdapter[Probe]:
    return TypeAdapter(Probe)


def _differences(
    known: Any, given: Any, tolerance: float, place: str = "output"
) -> Iterator[tuple[float, str]]:
    """Yields where two JSON values differ: how far off (inf: no numbers), and how in words."""
    if isinstance(known, dict) and isinstance(given, dict) and known.keys() == given.keys():
        for key, value in known.items():
            yield from _differences(value, given[key], tolerance, f"{place}.{key}")
    elif isinstance(known, list) and isinstance(given, list) and len(known) == len(given):
        for n, pair in enumerate(zip(known, given, strict=True)):
            yield from _differences(*pair, tolerance, f"{place}[{n}]")
    elif _is_number(known) and _is_number(given):
        rounded = isinstance(known, float) or isinstance(given, float)
        if not (_is_near(known, given, tolerance) if rounded else known == given):
            off = abs(known - given) / max(1.0, abs(known), abs(given))
            off = off if isfinite(off) else inf
            yield off, f"{place} is {given!r}, not {known!r}, off by {off:.2g}"
    elif type(known) is not type(given) or known != given:
        yield inf, f"{place} is {_short(given)}, not {_short(known)}"


def _is_near(known: float, given: float, tolerance: float) -> bool:
    return isclose(known, given, rel_tol=tolerance, abs_tol=tolerance)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
