"""Fields of the hash in Redis in which lua/count.lua counts what calls used."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from redis import Redis

from jobs.calls.keys import Keys
from jobs.calls.messages import OF_ADAPTER, CallUsage, class_of

_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_USED = ("succeeded", "failed", "units", "device_us", *_TOKENS)


def with_usage(client: "Redis") -> Iterator[str]:
    """Yields the models (name@version) that have usage to be recorded; scans all keys."""
    before, after = Keys("*")("used").split("*")
    for key in client.scan_iter(match=f"{before}*{after}", count=1000):
        yield key.decode().removeprefix(before).removesuffix(after)


def read(fields: Mapping[bytes, bytes], before: float) -> Iterator[CallUsage]:
    """Yields what fields count, of minutes before this one; inf: of all."""
    sums: dict[tuple[int, str, str, str], dict[str, Any]] = {}
    for field, value in fields.items():
        minute, named, what, tenant = field.decode().split(" ", 3)
        job_class, _, adapter = named.partition(OF_ADAPTER)
        if int(minute) < before:
            sums.setdefault((int(minute), tenant, job_class, adapter), {})[what] = int(value)
    for (number, tenant, job_class, adapter), counts in sorted(sums.items()):
        yield replace(CallUsage(number, tenant, job_class, adapter=adapter), **counts)


def names(used: Sequence[CallUsage]) -> list[str]:
    """Returns the fields that count this."""
    return [f"{one.minute} {class_of(one)} {what} {one.tenant}" for one in used for what in _USED]
