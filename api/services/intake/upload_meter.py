"""Uploads in progress: their bytes are compared with the disks' floor and tenants' quotas as they
arrive, so that many slow ones together pass neither."""

import asyncio
from collections import Counter
from collections.abc import Sequence

from sqlalchemy import Engine as Database
from starlette.concurrency import run_in_threadpool

from api.http import bodies
from api.services.intake.free_space import FreeSpace
from api.services.turns import TenantTurns
from jobs.errors import StorageFull
from jobs.identity import Caller, Limit
from jobs.store.billing import quota
from jobs.store.tenancy import acting

LOOK_BYTES = 8 << 20  #: Bytes of a tenant that arrive between two looks at what it has stored.
JOB_SHARE = 1 / 8  #: Part of a job's body that counts: what is stored of it is smaller.
_AGAIN_S = 0.2  # what was stored a moment ago may still count as an upload as well


class UploadMeter:
    """Bytes of the uploads that this process has on its disk, by tenant and by key.

    Every method runs on the event loop.
    """

    def __init__(self, database: Database, turns: TenantTurns, free_space: FreeSpace) -> None:
        self._database, self._turns, self._free_space = database, turns, free_space
        self._bytes: Counter[tuple[str, str]] = Counter()  # by tenant and key; "": all its keys
        self._unchecked: Counter[str] = Counter()  # since the latest look, by tenant

    def begin(self, caller: Caller, share: float = 1.0) -> "MeteredUpload":
        """Returns the meter of one upload. share: part of its bytes that counts
        towards `stored_bytes`."""
        return MeteredUpload(self, caller, share)

    async def add(self, caller: Caller, size: int, counted: int) -> None:
        """Counts bytes of an upload. counted: towards `stored_bytes`. Raises InsufficientStorage,
        StorageFull."""
        tenant = caller.tenant
        for place in _places(caller):
            self._bytes[place] += counted
        self._unchecked[tenant] += counted
        self._free_space.spend(size)
        if self._unchecked[tenant] >= LOOK_BYTES and caller.limits:
            self._unchecked[tenant] = 0
            try:
                await self._check(caller)
            except StorageFull:
                await asyncio.sleep(_AGAIN_S)
                await self._check(caller)

    def remove(self, caller: Caller, counted: int) -> None:
        """Ends an upload of which so many bytes were counted."""
        for place in _places(caller):
            self._bytes[place] -= counted
            if not self._bytes[place]:
                del self._bytes[place]
        if (caller.tenant, "") not in self._bytes:
            del self._unchecked[caller.tenant]

    async def _check(self, caller: Caller) -> None:
        tenant, key = (self._bytes[place] for place in _places(caller))
        limits = [(limit, key if limit.key else tenant) for limit in caller.limits]
        async with self._turns.place(caller.tenant, bounded=False):
            await run_in_threadpool(self._compare, caller.tenant, limits)

    def _compare(self, tenant: str, limits: Sequence[tuple[Limit, int]]) -> None:
        with acting(self._database, tenant) as tx:
            for limit, size in limits:
                quota.check_file(tx, tenant, [limit], size, lock=False)


class MeteredUpload:
    """One upload of a caller, which counts from 64 KiB on, until the end of the block."""

    def __init__(self, meter: UploadMeter, caller: Caller, share: float) -> None:
        self._meter, self._caller, self._share = meter, caller, share
        self._size = self._counted = 0

    def __enter__(self) -> None:
        pass

    async def add(self, size: int) -> None:
        """Counts bytes that are about to be written. Raises InsufficientStorage, StorageFull."""
        self._size += size
        if self._size > bodies.LIGHT_BYTES:
            counted = round(size * self._share)
            self._counted += counted
            await self._meter.add(self._caller, size, counted)

    def __exit__(self, *exc: object) -> None:
        if self._counted:
            self._meter.remove(self._caller, self._counted)


def _places(caller: Caller) -> tuple[tuple[str, str], tuple[str, str]]:
    return (caller.tenant, ""), (caller.tenant, caller.key_id or "-")
