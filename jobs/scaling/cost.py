"""Device time of an entry at full launches: what work costs, however small the launches are that
it happens to run in."""

from collections.abc import Mapping

from jobs.calls.profile import Profile, Times
from jobs.models.model import Model


def bucket_shares(entries_by_lane: Mapping[str, float]) -> dict[int, float]:
    """Returns the entries by bucket, of lanes that name theirs ("{…}/64")."""
    shares: dict[int, float] = {}
    for lane, count in entries_by_lane.items():
        bucket = lane.rpartition("/")[2]
        if bucket.isdigit():
            shares[int(bucket)] = shares.get(int(bucket), 0.0) + count
    return shares


def entry_s(model: Model, profile: Profile, shares: Mapping[int, float]) -> float:
    """Returns the seconds that one replica takes for one entry at full launches, by its profile.

    shares: entries by bucket; of the middle bucket where they aren't known. Before there was any
    worker: as if full launches just met the target.
    """
    slots = profile.slots or model.limits.in_flight
    if not profile.buckets:
        return model.target_ms / 1000 / model.limits.most_rows / slots
    known = {bucket: count for bucket, count in shares.items() if bucket in profile.buckets}
    if not known:
        buckets = sorted(profile.buckets)
        known = {buckets[len(buckets) // 2]: 1.0}
    total = sum(known.values())
    mean_s = sum(count * _full_s(profile.buckets[bucket]) for bucket, count in known.items())
    return mean_s / total / slots


def _full_s(times: Times) -> float:
    return times.full_ms / 1000 / max(1, times.full_rows)
