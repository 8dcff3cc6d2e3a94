"""Usage of calls by minute, tenant and class, counted in this process."""

from collections.abc import Sequence
from dataclasses import replace

from jobs.calls.messages import CallUsage, Reply
from jobs.models.inputs.generation import TokenUsage


class UsageCounter:
    """Counts replies as lua/reply.lua does."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, str, str], CallUsage] = {}
        self._billed: set[str] = set()  # calls that generated

    def count(self, reply: Reply, now_ms: float, *, known: bool) -> bool:
        """Counts a reply to a call that is known, or that generated and was not counted yet;
        returns False for any other."""
        unbilled = reply.tokens is not None and reply.id not in self._billed
        if not (known or unbilled):
            return False
        if reply.tokens:
            self._billed.add(reply.id)
        key = int(now_ms // 60_000), reply.tenant, reply.job_class
        self._used[key] = _added(self._used.get(key) or CallUsage(*key), reply)
        return True

    def usage(self, now_ms: float, *, unfinished: bool) -> list[CallUsage]:
        """Returns the usage of the minutes that are over, or of this one too."""
        minute = int(now_ms // 60_000)
        ended = [one for one in self._used.values() if unfinished or one.minute < minute]
        return sorted(ended, key=lambda one: (one.minute, one.tenant, one.job_class))

    def forget(self, used: Sequence[CallUsage]) -> None:
        """Forgets usage that is recorded elsewhere."""
        for one in used:
            self._used.pop((one.minute, one.tenant, one.job_class), None)


def _added(before: CallUsage, reply: Reply) -> CallUsage:
    succeeded, tokens = reply.error is None, reply.tokens or TokenUsage()
    return replace(
        before,
        succeeded=before.succeeded + succeeded,
        failed=before.failed + (not succeeded),
        units=before.units + (reply.units if succeeded else 0),
        device_us=before.device_us + reply.device_us,
        input_tokens=before.input_tokens + tokens.input,
        cached_tokens=before.cached_tokens + tokens.cached,
        output_tokens=before.output_tokens + tokens.output,
    )
