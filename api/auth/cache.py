"""What credentials were found to be, remembered for seconds: who is asked for often is looked up
beside the requests, and none of them waits for it."""

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

FRESH_S = 1.5
"""Who is asked for after that is looked up again, beside the request."""
GOOD_S = 3.0
"""And after that before it is answered."""
AWAY_S = 300.0
"""While nobody can be looked up, those found before go on for so long."""
_PATIENCE_S = 0.5
_RETRY_S = 1.0
_MOST = 50_000
_MOST_NOBODIES = 10_000
_MOST_LOOKUPS = 1000


@dataclass(frozen=True, slots=True)
class Found:
    """caller: None: nobody. ends_s: it is nobody from then on, on the monotonic clock."""

    caller: Caller | None
    ends_s: float = inf


@dataclass(slots=True)
class _Entry:
    caller: Caller
    found_s: float
    ends_s: float
    fresh_s: float = 0.0
    good_s: float = 0.0

    def extend(self, fresh_s: float, good_s: float) -> None:
        """Never beyond its end."""
        self.fresh_s, self.good_s = min(fresh_s, self.ends_s), min(good_s, self.ends_s)


class CredentialCache:
    """Every method belongs to the event loop; `find` runs on threads. It takes the credential, and
    raises Unavailable, or what the store raises, where nobody can tell now. apart: whether that may
    take long, for reasons that are not the others'."""

    def __init__(
        self, find: Callable[[bytes], Found], apart: Callable[[bytes], bool] = lambda _: False
    ) -> None:
        self._find, self._apart = find, apart
        self._known: OrderedDict[bytes, _Entry] = OrderedDict()
        self._nobodies: OrderedDict[bytes, float] = OrderedDict()
        self._looking: dict[bytes, asyncio.Task[Found]] = {}
        self._changes = 0
        self._away = False
        # Whoever sends keys by the thousand that are none delays no one who was known.
        self._threads = {
            (known, apart): ThreadPoolExecutor(1 if known else 2, "credentials")
            for known in (True, False)
            for apart in (True, False)
        }

    async def of(self, name: bytes, credential: bytes) -> Caller | None:
        """Who that is; None: nobody. name: what it is remembered under.

        Raises Unavailable and the store's errors where that can't be told.
        """
        now_s = clock.monotonic()
        if entry := self._known.get(name):
            if now_s < entry.fresh_s:
                self._known.move_to_end(name)
                return entry.caller
            if now_s < entry.ends_s:
                return await self._again(name, credential, entry, now_s)
        elif now_s < self._nobodies.get(name, 0.0):
            return None
        return (await asyncio.shield(self._look(name, credential))).caller

    async def _again(
        self, name: bytes, credential: bytes, entry: _Entry, now_s: float
    ) -> Caller | None:
        looking = self._look(name, credential)
        if now_s < entry.good_s:
            return entry.caller
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return (await asyncio.shield(looking)).caller
        except (TimeoutError, Unavailable, *CONNECTION_ERRORS):
            if not self._carry_on(entry):
                raise Unavailable("credentials can't be checked", retry_after_s=_RETRY_S) from None
            return entry.caller

    def _carry_on(self, entry: _Entry) -> bool:
        """As it was found last, for a while."""
        now_s = clock.monotonic()
        if now_s < min(entry.found_s + AWAY_S, entry.ends_s):
            entry.extend(now_s + _RETRY_S, now_s + _RETRY_S)
            return True
        return False

    def _look(self, name: bytes, credential: bytes) -> asyncio.Task[Found]:
        """The lookup in hand, or a new one."""
        if looking := self._looking.get(name):
            return looking
        if name not in self._known and len(self._looking) >= _MOST_LOOKUPS:
            raise Unavailable("too many credentials are looked up now", retry_after_s=_RETRY_S)
        looking = asyncio.create_task(self._look_up(name, credential))
        self._looking[name] = looking
        looking.add_done_callback(lambda task: self._done(name, task))
        return looking

    async def _look_up(self, name: bytes, credential: bytes) -> Found:
        loop = asyncio.get_running_loop()
        threads = self._threads[name in self._known, self._apart(credential)]
        changes = -1
        while changes != self._changes:  # what is found is older than a change that we heard of
            changes = self._changes
            found = await loop.run_in_executor(threads, self._find, credential)
        if clock.monotonic() >= found.ends_s:
            found = Found(None)
        self._keep(name, found)
        return found

    def _done(self, name: bytes, task: asyncio.Task[Found]) -> None:
        self._looking.pop(name, None)
        if task.cancelled():
            return
        if (error := task.exception()) and (entry := self._known.get(name)):
            self._carry_on(entry)
        if bool(error) != self._away:
            self._away = bool(error)
            what = f"can't be looked up: {type(error).__name__}" if error else "are found again"
            _log.warning("credentials %s", what)

    def _keep(self, name: bytes, found: Found) -> None:
        now_s = clock.monotonic()
        if found.caller is None:
            self._known.pop(name, None)
            self._nobodies[name] = now_s + GOOD_S
            if len(self._nobodies) > _MOST_NOBODIES:
                self._nobodies.popitem(last=False)
            return
        self._nobodies.pop(name, None)
        entry = self._known[name] = _Entry(found.caller, now_s, found.ends_s)
        entry.extend(now_s + FRESH_S, now_s + GOOD_S)
        self._known.move_to_end(name)
        if len(self._known) > _MOST:
            self._known.popitem(last=False)

    def forget(self, tenant: str) -> None:
        """This tenant's credentials, or all of them (''), are looked up before they count again."""
        self._changes += 1
        self._nobodies.clear()
        for entry in self._known.values():
            if tenant in ("", entry.caller.tenant):
                entry.fresh_s = entry.good_s = 0.0

    def stop(self) -> None:
        for looking in list(self._looking.values()):
            looking.cancel()
        for threads in self._threads.values():
            threads.shutdown(wait=True, cancel_futures=True)
