"""Profile of a model's launches, which its workers announce and admission predicts by."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

import orjson

from jobs.calls.lanes import CallLanes, Terms

_NO_SLOT = "nobody/0"  # a slot that is never busy


@dataclass(frozen=True, slots=True)
class Times:
    """Launches of one bucket."""

    full_rows: int  #: most rows of a launch
    full_ms: float  #: time of a launch of so many rows
    one_ms: float  #: time of a launch of a single row
    step_ms: float | None = None  #: that each further row adds; None: evenly, up to full_ms
    alone_ms: float | None = None  #: of a single row where nothing else runs; None: one_ms


@dataclass(frozen=True, slots=True)
class Profile:
    """Launch times as the latest worker has measured them."""

    load_ms: float = 0.0  #: time until a worker that loads the model is ready; 0: not known
    buckets: Mapping[int, Times] = field(default_factory=dict)
    slots: int = 0  #: concurrent launches of one worker; 0: as declared
    #: time by which a launch is later for a tenant whose prompts are computed now, by tenant
    behind_ms: Mapping[str, float] = field(default_factory=dict)

    def terms(self, bucket: int, slots: int, allowed_ms: float, tenant: str = "") -> Terms:
        """Returns the terms of a call of this bucket; without times, none is rejected."""
        times = self.buckets.get(bucket)
        if times is None:
            return Terms(slots=slots)
        step_ms = times.step_ms
        if step_ms is None:
            step_ms = (times.full_ms - times.one_ms) / max(1, times.full_rows - 1)
        return Terms(
            allowed_ms=allowed_ms,
            one_ms=times.one_ms + self.behind_ms.get(tenant, 0.0),
            step_ms=max(0.0, step_ms),
            full_rows=times.full_rows,
            full_ms=times.full_ms,
            slots=slots,
        )

    def pack(self) -> bytes:
        """Returns the profile as JSON."""
        packed = asdict(self)
        for times in packed["buckets"].values():
            for name in ("step_ms", "alone_ms"):
                if times[name] is None:
                    del times[name]  # an api of an earlier release doesn't know it
        return orjson.dumps(packed, option=orjson.OPT_NON_STR_KEYS)

    @classmethod
    def unpack(cls, packed: bytes) -> "Profile":
        """Reads the bytes of `pack`; empty: nothing is known."""
        if not packed:
            return cls()
        fields = orjson.loads(packed)
        buckets = {int(bucket): Times(**times) for bucket, times in fields["buckets"].items()}
        slots, behind_ms = fields.get("slots", 0), fields.get("behind_ms", {})
        return cls(fields["load_ms"], buckets, slots, behind_ms)


def mean_profile(lanes: CallLanes) -> Profile:
    """Returns the profile of a mean worker of a model: as many of it do as much as all do.

    Raises ValueError, LookupError or TypeError for what another release has announced.
    """
    profiles = [Profile.unpack(packed) for packed in lanes.profiles()]
    if len(profiles) < 2:
        return profiles[0] if profiles else Profile()
    counts = [len(tier.workers) for tier in lanes.look(_NO_SLOT).tiers]
    counted = list(zip(profiles, counts, strict=False))
    buckets = {
        bucket: _mean([(its.buckets[bucket], n) for its, n in counted if bucket in its.buckets])
        for bucket in profiles[0].buckets
    }
    return replace(profiles[0], buckets=buckets)


def _mean(times: Sequence[tuple[Times, int]]) -> Times:
    """Returns harmonic means."""
    workers = sum(n for _, n in times)
    full_ms, one_ms = (
        workers / sum(n / max(getattr(its, name), 1e-6) for its, n in times)
        for name in ("full_ms", "one_ms")
    )
    return Times(times[0][0].full_rows, full_ms, one_ms)
