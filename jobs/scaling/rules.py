"""Declared rules, as people write them: `queue above 500 for 30 s: +3`."""

import re
from dataclasses import dataclass
from typing import Literal

from jobs.scaling.signals import Signals

_UNITS = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0}
_RULE = re.compile(
    r"(?P<signal>\w+) (?P<side>above|below) (?P<bound>\d+(?:\.\d+)?)(?: ?(?P<unit>%|ms|s|min|h))?"
    r" for (?P<time>\d+(?:\.\d+)?) ?(?P<time_unit>ms|s|min|h): ?(?P<add>[+\-−]\d+)"
)

#: By the name in a rule: field of the signals, and the units of its bounds; "": a plain number.
_SIGNALS: dict[str, tuple[str, tuple[str, ...]]] = {
    "queue": ("queue", ("",)),
    "items": ("items", ("",)),
    "used": ("used", ("%",)),
    "refused": ("refused", ("%",)),
    "late": ("late", ("%",)),
    "wait": ("wait_s", tuple(_UNITS)),
    "drain": ("drain_s", tuple(_UNITS)),
    "lag": ("lag_s", tuple(_UNITS)),
    "requests": ("requests_s", ("",)),
}


@dataclass(frozen=True, slots=True)
class Rule:
    """Replicas to add while a signal has been beyond a bound for some time."""

    text: str  #: as it was written
    field: str  #: of Signals
    side: Literal["above", "below"]
    bound: float  #: in the field's unit
    for_s: float  #: time for which it has to hold, without a break
    add: int  #: replicas; negative: to remove

    def holds(self, signals: Signals) -> bool:
        """Returns True if the signal is beyond the bound now; False where the pool has none."""
        value: float | None = getattr(signals, self.field)
        if value is None:
            return False
        return value > self.bound if self.side == "above" else value < self.bound


def parse(text: str) -> Rule:
    """Returns the rule. Raises ValueError with what is wrong."""
    found = _RULE.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r}: write it as in 'queue above 500 for 30 s: +3'")
    signal, unit = found["signal"], found["unit"] or ""
    if signal not in _SIGNALS:
        raise ValueError(f"{text!r}: {signal} is no signal; there are {', '.join(_SIGNALS)}")
    field, units = _SIGNALS[signal]
    if unit not in units:
        listed = " or ".join(filter(None, units)) or "no unit"
        raise ValueError(f"{text!r}: the bound of {signal} has {listed}")
    add = int(found["add"].replace("−", "-"))
    if add == 0:
        raise ValueError(f"{text!r}: adds nothing")
    scale = 0.01 if unit == "%" else _UNITS.get(unit, 1.0)
    return Rule(
        text=text.strip(),
        field=field,
        side="above" if found["side"] == "above" else "below",
        bound=float(found["bound"]) * scale,
        for_s=float(found["time"]) * _UNITS[found["time_unit"]],
        add=add,
    )
