"""Cache of credentials with a soft and a hard TTL: credentials in use are refreshed in the
background, and requests do not wait for the lookup."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import inf

from jobs import clock
from jobs.errors import Unavailable
from jobs.identity import Caller
from jobs.store.db import CONNECTION_ERRORS

_log = logging.getLogger(__name__)

SOFT_TTL_S = 1.5  #: Refreshed in the background after this time.
HARD_TTL_S = 3.0  #: Looked up before it counts after this time.
STALE_S = 300.0  #: Callers found before stay valid this long while lookups fail.
_LOOKUP_WAIT_S = 0.5  #: A request waits this long for the refresh of an expired entry.
_RETRY_S = 1.0
_MAX_CALLERS = 50_000
_MAX_UNKNOWN = 10_000
_MAX_LOOKUPS = 1000


@dataclass(frozen=True, slots=True)
class LookupResult:
    """Result of one lookup."""

    caller: Caller | None  #: None: the credential is unknown
    ends_s: float = inf  #: expiry of the credential, on the monotonic clock


@dataclass(slots=True)
class _Entry:
    caller: Caller
    found_s: float
    ends_s: float
    soft_s: float = 0.0
    hard_s: float = 0.0

    def extend(self, soft_s: float, hard_s: float) -> None:
        """Sets both deadlines, at most to the end of the credential."""
        self.soft_s, self.hard_s = min(soft_s, self.ends_s), min(hard_s, self.ends_s)


class CredentialCache:
    """Callers by hashed credential.

    Every method runs on the event loop; `find` runs on threads. It takes the credential, and
    raises Unavailable or the store's errors where the lookup fails. `is_slow` tells which
    credentials get threads of their own.
    """

    def __init__(
        self,
        find: Callable[[bytes], LookupResult],
        is_slow: Callable[[bytes], bool] = lambda _: False,
    ) -> None:
        self._look_up_now, self._is_slow = find, is_slow
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._unknown: OrderedDict[bytes, float] = OrderedDict()
        self._lookups: dict[bytes, asyncio.Task[LookupResult]] = {}
        self._invalidations = 0
        self._failing = False
        # Floods of invalid keys don't delay the refresh of known ones.
        self._threads = {
            (cached, is_slow): ThreadPoolExecutor(1 if cached else 2, "credentials")
            for cached in (True, False)
            for is_slow in (True, False)
        }

    @property
    def lookups_in_flight(self) -> int:
        """Number of lookups that have not ended."""
        return len(self._lookups)

    def known_tenant(self, name: bytes) -> str:
        """Returns the tenant of a cached caller; "" of any other."""
        entry = self._entries.get(name)
        return entry.caller.tenant if entry else ""

    async def get(self, name: bytes, credential: bytes) -> Caller | None:
        """Returns the caller; None if the credential is unknown. `name` is the cache key.

        Raises Unavailable and the store's errors where the lookup fails.
        """
        now_s = clock.monotonic()
        if entry := self._entries.get(name):
            if now_s < entry.soft_s:
                self._entries.move_to_end(name)
                return entry.caller
            if now_s < entry.ends_s:
                return await self._revalidate(name, credential, entry, now_s)
        elif now_s < self._unknown.get(name, 0.0):
            return None
        return (await asyncio.shield(self._lookup(name, credential))).caller

    async def _revalidate(
        self, name: bytes, credential: bytes, entry: _Entry, now_s: float
    ) -> Caller | None:
        lookup = self._lookup(name, credential)
        if now_s < entry.hard_s:
            return entry.caller
        try:
            async with asyncio.timeout(_LOOKUP_WAIT_S):
                return (await asyncio.shield(lookup)).caller
        except (TimeoutError, Unavailable, *CONNECTION_ERRORS):
            if not self._extend_stale(entry):
                raise Unavailable("credentials can't be checked", retry_after_s=_RETRY_S) from None
            return entry.caller

    def _extend_stale(self, entry: _Entry) -> bool:
        """Extends a stale entry while lookups fail. Returns False once it is too old."""
        now_s = clock.monotonic()
        if now_s < min(entry.found_s + STALE_S, entry.ends_s):
            entry.extend(now_s + _RETRY_S, now_s + _RETRY_S)
            return True
        return False

    def _lookup(self, name: bytes, credential: bytes) -> asyncio.Task[LookupResult]:
        """Returns the lookup in flight, or starts one. Raises Unavailable."""
        if lookup := self._lookups.get(name):
            return lookup
        if name not in self._entries and len(self._lookups) >= _MAX_LOOKUPS:
            raise Unavailable("too many credentials are being looked up", retry_after_s=_RETRY_S)
        lookup = asyncio.create_task(self._run_lookup(name, credential))
        self._lookups[name] = lookup
        lookup.add_done_callback(lambda task: self._finished(name, task))
        return lookup

    async def _run_lookup(self, name: bytes, credential: bytes) -> LookupResult:
        loop = asyncio.get_running_loop()
        threads = self._threads[name in self._entries, self._is_slow(credential)]
        invalidations = -1
        while invalidations != self._invalidations:  # a change may be newer than the result
            invalidations = self._invalidations
            result = await loop.run_in_executor(threads, self._look_up_now, credential)
        if clock.monotonic() >= result.ends_s:
            result = LookupResult(None)
        self._store(name, result)
        return result

    def _finished(self, name: bytes, task: asyncio.Task[LookupResult]) -> None:
        self._lookups.pop(name, None)
        if task.cancelled():
            return
        if (error := task.exception()) and (entry := self._entries.get(name)):
            self._extend_stale(entry)
        if bool(error) != self._failing:
            self._failing = bool(error)
            failure = f"can't be looked up: {type(error).__name__}"
            _log.warning("credentials %s", failure if error else "are looked up again")

    def _store(self, name: bytes, result: LookupResult) -> None:
        now_s = clock.monotonic()
        if result.caller is None:
            self._entries.pop(name, None)
            self._unknown[name] = now_s + HARD_TTL_S
            if len(self._unknown) > _MAX_UNKNOWN:
                self._unknown.popitem(last=False)
            return
        self._unknown.pop(name, None)
        entry = self._entries[name] = _Entry(result.caller, now_s, result.ends_s)
        entry.extend(now_s + SOFT_TTL_S, now_s + HARD_TTL_S)
        self._entries.move_to_end(name)
        if len(self._entries) > _MAX_CALLERS:
            self._entries.popitem(last=False)

    def forget(self, tenant: str) -> None:
        """Invalidates the entries of this tenant, or all (""): they are looked up before they
        count."""
        self._invalidations += 1
        self._unknown.clear()
        for entry in self._entries.values():
            if tenant in ("", entry.caller.tenant):
                entry.soft_s = entry.hard_s = 0.0

    def stop(self) -> None:
        """Cancels lookups, and waits for their threads."""
        for lookup in list(self._lookups.values()):
            lookup.cancel()
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
