"""Streams that are open in this process: each holds deltas that its client has not read yet, so one
tenant has a bounded number of them."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from jobs import clock
from jobs.errors import QuotaExceeded
from jobs.limits import Bound

_AGAIN_S = 1.0


class OpenStreams:
    """Number of open streams by tenant. most: of one tenant."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = Counter[str]()

    @contextmanager
    def opened(self, tenant: str, *, resumed: bool = False) -> Iterator[None]:
        """Counts a stream as open. Raises QuotaExceeded where its tenant has as many as it may: one
        that is resumed was let in before."""
        if not resumed and self._open[tenant] >= self._most:
            raise QuotaExceeded(
                f"the tenant may have {self._most} streams open at one api (MILLRACE_MAX_STREAMS)",
                bound=Bound("open_streams", self._most),
                retry_after_s=_AGAIN_S + clock.jitter(_AGAIN_S),
            )
        self._open[tenant] += 1
        try:
            yield
        finally:
            self._open[tenant] -= 1
            if not self._open[tenant]:
                del self._open[tenant]
