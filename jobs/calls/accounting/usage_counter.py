"""Usage of calls by minute, tenant and class, counted in this process."""

from collections.abc import Sequence
from dataclasses import replace

from jobs.calls.messages import CallUsage, Reply
from jobs.models.inputs.generation import TokenUsage


class UsageCounter:
    """Counts replies as lua/reply.lua does."""

    def __init__(self) -> None:
        self._used: dict[tuple[int, str, str, str], CallUsage] = {}
        self._billed: set[str] = set()  # calls that generated

    def count(self, reply: Reply, now_ms: float, *, known: bool) -> bool:
        """Counts a reply to a call that is known, or that generated and was not counted yet;
        returns False for any other. Nobody's use is not counted."""
        if not reply.billed:
            return known
        unbilled = reply.tokens is not None and reply.id not in self._billed
        if not (known or unbilled):
            return False
        if reply.tokens:
            self._billed.add(reply.id)
        new = CallUsage(int(now_ms // 60_000), reply.tenant, reply.job_class, adapter=reply.adapter)
        self._used[_key(new)] = _added(self._used.get(_key(new)) or new, reply)
        return True

    def usage(self, now_ms: float, *, unfinished: bool) -> list[CallUsage]:
        """Returns the usage of the minutes that are over, or of this one too."""
        minute = int(now_ms // 60_000)
        ended = [one for one in self._used.values() if unfinished or one.minute < minute]
        return sorted(ended, key=_key)

    def forget(self, used: Sequence[CallUsage]) -> None:
        """Forgets usage that is recorded elsewhere."""
        for one in used:
            self._used.pop(_key(one), None)


def _key(used: CallUsage) -> tuple[int, str, str, str]:
    return used.minute, used.tenant, used.job_class, used.adapter


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
