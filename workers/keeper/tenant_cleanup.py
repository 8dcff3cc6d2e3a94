"""Erasure of tenants in Redis: responses kept under Idempotency-Keys, counts for quotas, and
records of calls.

They expire by themselves in time; this deletes them at once.
"""

import logging
import re
from collections.abc import Collection, Iterator

from redis import Redis, RedisError

from jobs.calls import keys
from jobs.calls import redis as call_redis
from jobs.calls.records import CallRecord, minute_key
from jobs.intake.idempotency_key import kept_under
from jobs.settings import Settings
from jobs.store.db import Tx
from jobs.store.tenants import erasure

_log = logging.getLogger(__name__)
_MAX_CALL_S = 600.0
_SCAN_KEYS = 1000
_GLOB = re.compile(r"([\\*?\[\]])")


class TenantCleanup:
    """Deletes the keys of tenants that were erased lately."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url
        # A call admitted just before the erasure may end, and be kept, up to this much later.
        self._within_s = _MAX_CALL_S + settings.call_idempotency_s

    def run_once(self, tx: Tx) -> int:
        """Returns 0: what isn't reached now is reached in the next run."""
        erased = erasure.recently_erased(tx, self._within_s)
        if erased:
            try:
                with call_redis.connect(self._url) as client:
                    for tenant in erased:
                        _erase(client, tenant)
                    _erase_records(client, erased)
            except RedisError as error:
                _log.warning("keys of erased tenants can't be deleted now: %s", error)
        return 0


def _erase(client: "Redis", tenant: str) -> None:
    for pattern in _patterns(tenant):
        for name in client.scan_iter(pattern, count=_SCAN_KEYS):
            client.unlink(name)


def _erase_records(client: "Redis", tenants: Collection[str]) -> None:
    """Deletes the records of these tenants' calls from the hashes that all tenants' lie in."""
    for name in client.scan_iter(minute_key("*"), count=_SCAN_KEYS):
        records: dict[bytes, bytes] = client.hgetall(name)  # type: ignore[assignment]
        theirs = [id for id, packed in records.items() if _tenant_of(packed) in tenants]
        if theirs:
            client.hdel(name, *theirs)


def _tenant_of(packed: bytes) -> str:
    try:
        return CallRecord.unpack(packed).tenant
    except (ValueError, TypeError):  # of another release, or no record
        return ""


def _patterns(tenant: str) -> Iterator[str]:
    """Yields patterns of all keys that name a tenant, other than calls in progress."""
    yield kept_under(_GLOB.sub(r"\\\1", tenant), "*")
    yield keys.rates_key(tenant)
    yield keys.open_key(tenant, "*")
