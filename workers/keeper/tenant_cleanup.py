"""What Redis knows of tenants that left: answers that were kept under their Idempotency-Keys, what
is counted against their quotas. It forgets all of that by itself in time; here it is made to."""

import logging
import re
from collections.abc import Iterator
from urllib.parse import quote

from redis import Redis, RedisError

from jobs.calls import redis as call_redis
from jobs.intake.idempotency_key import kept_under
from jobs.settings import Settings
from jobs.store.db import Tx
from jobs.store.tenants import erasure

_log = logging.getLogger(__name__)
_LONGEST_CALL_S = 600.0
_AT_ONCE = 1000
_GLOB = re.compile(r"([\\*?\[\]])")


class TenantCleanup:
    """One duty of the keeper."""

    def __init__(self, settings: Settings) -> None:
        self._url = settings.redis_url
        # A call that was let in just before may be answered, and its answer kept, after all that.
        self._within_s = _LONGEST_CALL_S + settings.call_idempotency_s

    def run_once(self, tx: Tx) -> int:
        """Always 0: what isn't reached now is reached in the next turn."""
        leaving = erasure.recently_erased(tx, self._within_s)
        if leaving:
            try:
                with call_redis.connect(self._url) as client:
                    for tenant in leaving:
                        _erase(client, tenant)
            except RedisError as error:
                _log.warning("traces of tenants can't be erased now: %s", error)
        return 0


def _erase(client: "Redis", tenant: str) -> None:
    for pattern in _patterns(tenant):
        for name in client.scan_iter(pattern, count=_AT_ONCE):
            client.unlink(name)


def _patterns(tenant: str) -> Iterator[str]:
    """Of all keys that name a tenant, beside the calls of this moment."""
    yield kept_under(_GLOB.sub(r"\\\1", tenant), "*")
    yield f"millrace:rates:{quote(tenant)}"
    yield f"millrace:open:{quote(tenant)}:*"
