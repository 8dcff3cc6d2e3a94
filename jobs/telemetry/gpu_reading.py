"""One reading of a GPU, as workers take it, report it and show it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

KEY = "gpu"
"""Key of the reading in the details of a worker's report."""

APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 109})
"""Xid numbers that a program causes and a sound GPU reports: an illegal access or instruction, a
channel that was reset or preempted, a timeout of a context switch. NVIDIA's plugin for Kubernetes
keeps a GPU in service after them."""


@dataclass(frozen=True, slots=True)
class GpuReading:
    """State of a GPU; None is what the device, its driver or a container doesn't tell."""

    seconds: float  #: since the reading before; 0: it is the first
    #: mean share of the SMs that had work since the reading before, 0 to 1; Hopper and later
    sm_activity: float | None = None
    #: share of the driver's last sample period (1/6 to 1 s) with a kernel running, 0 to 1: one SM
    #: at work is enough for 1, so SM activity is never above it
    kernel_activity: float | None = None
    memory_used: int | None = None  #: bytes, of all processes; of a MIG part, in the part
    memory_total: int | None = None  #: bytes
    power_w: float | None = None  #: of the whole GPU; so are the fields below
    power_limit_w: float | None = None  #: enforced limit
    temperature_c: int | None = None
    throttling: tuple[str, ...] | None = None  #: reasons that hold, by name; (): full clocks
    ecc_uncorrected: int | None = None  #: uncorrected memory errors since the driver was loaded
    #: critical errors by Xid number since the worker's first reading, whichever process had them
    xids: Mapping[int, int] | None = None

    @property
    def faults(self) -> dict[int, int]:
        """Counts of the Xids that no program causes, by number."""
        return {xid: n for xid, n in (self.xids or {}).items() if xid not in APPLICATION_XIDS}

    @property
    def errors(self) -> list[str]:
        """Errors in words, such as "2 uncorrected memory errors" or "Xid 79, 3 times"."""
        words = []
        if n := self.ecc_uncorrected:
            words.append(f"{n} uncorrected memory error{'s' if n > 1 else ''}")
        for xid, n in sorted((self.xids or {}).items()):
            words.append(f"Xid {xid}, {n} times" if n > 1 else f"Xid {xid}")
        return words

    def as_json(self) -> dict[str, Any]:
        """Returns the fields, Xid numbers as text."""
        xids = None if self.xids is None else {str(xid): n for xid, n in self.xids.items()}
        return {**asdict(self), "xids": xids}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "GpuReading":
        """Parses what `as_json` returned, of this release or another."""
        known = {one.name: told[one.name] for one in fields(cls) if one.name in told}
        if known.get("throttling") is not None:
            known["throttling"] = tuple(known["throttling"])
        if known.get("xids") is not None:
            known["xids"] = {int(xid): n for xid, n in known["xids"].items()}
        return cls(**{"seconds": 0.0, **known})


def of_details(details: Mapping[str, Any]) -> GpuReading | None:
    """Returns the last reading in the details of a worker's report; None where it has no GPU, or
    NVML told nothing."""
    told = details.get(KEY)
    return GpuReading.from_json(told) if told else None
