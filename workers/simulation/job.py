"""Job without an end: every replica always has slices of it in hand."""

from collections.abc import Sequence
from random import Random

from jobs.calls.lanes import bucket_of, lane_name
from jobs.models.model import Model
from workers.scheduler.entries import Entry
from workers.scheduler.lanes import ItemLanes

_SLICES = 4  # in hand, as in workers/device/model_host.py


class Job:
    """Job whose items have random sizes out of `sizes`."""

    def __init__(self, model: Model, sizes: Sequence[int], random: Random) -> None:
        self._model, self._random = model, random
        buckets = [bucket_of(size, model.buckets) for size in sizes]
        self._kinds = [(n, b, lane_name({}, b)) for n, b in zip(sizes, buckets, strict=True)]

    def top_up(self, items: ItemLanes, now_s: float) -> bool:
        """Claims slices while there is room; returns True if it did."""
        limits = self._model.limits
        slice_items = max(limits.slice_items, limits.most_rows)  # several slices fill a launch
        claimed = False
        while len(items) <= (_SLICES - 1) * slice_items:
            items.put(self._entry(now_s) for _ in range(slice_items))
            claimed = True
        return claimed

    def _entry(self, now_s: float) -> Entry:
        size, bucket, lane = self._random.choice(self._kinds)
        return Entry(self, 0, lane, bucket, size, None, now_s)
