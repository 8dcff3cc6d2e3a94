"""Past of a pool: earlier decisions, since when something holds, arrivals."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from jobs.scaling.forecast import Arrivals


@dataclass(frozen=True, slots=True)
class History:
    """Past of one pool. All times are Unix times, s."""

    desired: int | None = None  #: as decided last; None: nothing was
    changed_s: float = 0.0  #: when that was last changed
    grown_s: float = 0.0  #: when it last grew
    low_since_s: float | None = None  #: since when fewer would do; None: they wouldn't
    holding: Mapping[str, float] = field(default_factory=dict)  #: rule → since when it has held
    short_since_s: float | None = None  #: since when fewer are ready than desired
    settled_since_s: float | None = None  #: since when they are all ready
    overdue: bool = False  #: True once it was said that replicas don't get ready
    #: requests a second of each api when it last grew since they lagged; None: it never did
    strained_each_s: float | None = None
    arrivals: Arrivals = field(default_factory=Arrivals)

    def without_timers(self) -> "History":
        """Returns it as if nothing had held until now."""
        return replace(self, low_since_s=None, settled_since_s=None, holding={})

    def state(self) -> dict[str, Any]:
        """Returns all but the arrivals, for JSON."""
        return {
            "desired": self.desired,
            "changed_s": self.changed_s,
            "grown_s": self.grown_s,
            "low_since_s": self.low_since_s,
            "holding": dict(self.holding),
            "short_since_s": self.short_since_s,
            "settled_since_s": self.settled_since_s,
            "overdue": self.overdue,
            "strained_each_s": self.strained_each_s,
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], desired: int | None, at_s: float, arrivals: Arrivals
    ) -> "History":
        """Reads what `state` returned; fields of other releases are left out. desired: as it is
        now, by a person's word perhaps; at_s: from when on times count that aren't known."""
        known = {name: state[name] for name in cls().state() if name in state}
        times = {"changed_s": at_s, "grown_s": at_s}
        return cls(**{**times, **known, "desired": desired, "arrivals": arrivals})
