"""A job of so many items through the platform, every result checked."""

import orjson

from jobs import clock
from ops.bench.harness.platform import BenchError
from ops.bench.load.ndjson_client import Stream

_ITEM_BYTES = 150  # as JSON


class RoundTrip:
    """Items of 150 bytes for `echo`, over one connection."""

    def __init__(self, stream: Stream, items: int) -> None:
        self._stream = stream
        self.texts = [f"item {n} ".ljust(_ITEM_BYTES - 2, ".") for n in range(items)]

    def seconds(self) -> float:
        """From the first byte posted to the last result read."""
        since_s = clock.monotonic()
        self.read(self.post())
        return clock.monotonic() - since_s

    def post(self) -> str:
        return self._stream.post("echo", self.texts)

    def read(self, job: str) -> None:
        """Reads the results as they appear; raises BenchError where one isn't the item's."""
        seen = 0
        for line in self._stream.results(job):
            result = orjson.loads(line)
            if result["seq"] != seen or result["output"] != self.texts[seen]:
                raise BenchError(f"in place of the result of item {seen}: {result}")
            seen += 1
        if seen != len(self.texts):
            raise BenchError(f"{seen} results of {len(self.texts):,} items")
