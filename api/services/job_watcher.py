"""Progress of jobs, as server-sent events: one look at the database for all who watch."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
from fastapi.concurrency import run_in_threadpool
from sqlalchemy import Engine as Database

from jobs import ids
from jobs.states import TERMINAL
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.jobs import read
from jobs.store.tenancy import EVERYBODY, acting
from jobs.views import jobs

_log = logging.getLogger(__name__)
_LOOK_S = 0.5
_HEARTBEAT_S = 15.0
_RETRY = b"retry: 2000\n\n"  # ms until a client that lost its stream asks again
_HEARTBEAT = b": still here\n\n"

Job = dict[str, Any]


async def _always() -> bool:
    return True


@dataclass(eq=False, slots=True)
class _Watch:
    """One client's stream. It gets the latest state when it can take it, and none in between."""

    latest: Job | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, job: Job | None) -> None:
        """job: None where nothing more will come."""
        if _state(job) != _state(self.latest):
            self.latest = job
            self.changed.set()

    async def wait(self) -> bool:
        """Until something changed, or a heartbeat is due: False."""
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await self.changed.wait()
        except TimeoutError:
            return False
        self.changed.clear()
        return True


class JobWatcher:
    """The jobs that clients of this process watch. A client costs no thread and no connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watches: dict[UUID, set[_Watch]] = {}
        self._watched = asyncio.Event()
        self._closed = False
        self._looker: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looker = asyncio.create_task(self._look_around())

    def close(self) -> None:
        """Ends every stream: the process stops, and another one will go on."""
        self._closed = True
        self._watched.set()
        for watches in self._watches.values():
            for watch in watches:
                watch.show(None)

    async def stop(self) -> None:
        """Ends after the look in hand: its thread has a connection."""
        self.close()
        if self._looker:
            await self._looker

    def watching(self) -> int:
        """How many streams are open."""
        return sum(map(len, self._watches.values()))

    async def stream(
        self, job: Job, allowed: Callable[[], Awaitable[bool]] = _always
    ) -> AsyncIterator[bytes]:
        """Its state now and whenever that changes, until it is terminal. allowed: whether the
        client may still have it; asked before each piece, so that a key that ends, ends this."""
        with self._watch(job) as watch:
            yield _RETRY + _event(job)
            while not self._closed and job["state"] not in TERMINAL:
                changed = await watch.wait()
                if not await allowed() or watch.latest is None:
                    return
                if not changed:
                    yield _HEARTBEAT
                else:
                    job = watch.latest
                    yield _event(job)

    @contextmanager
    def _watch(self, job: Job) -> Iterator[_Watch]:
        id, watch = ids.parse("job", job["id"]), _Watch(job)
        assert id is not None
        self._watches.setdefault(id, set()).add(watch)
        self._watched.set()
        try:
            yield watch
        finally:
            self._watches[id].discard(watch)
            if not self._watches[id]:
                del self._watches[id]

    async def _look_around(self) -> None:
        await self._watched.wait()
        while not self._closed:
            await self._look()
            await asyncio.sleep(_LOOK_S)
            if not self._watches and not self._closed:
                self._watched.clear()
            await self._watched.wait()

    async def _look(self) -> None:
        asked = list(self._watches)
        try:
            found = await run_in_threadpool(self._read, asked)
        except CONNECTION_ERRORS as error:
            _log.warning("can't look at watched jobs: %s", error)
            return
        for id in asked:
            for watch in self._watches.get(id, ()):
                watch.show(found.get(id))

    def _read(self, asked: Sequence[UUID]) -> dict[UUID, Job]:
        with acting(self._database, EVERYBODY) as tx:  # each was found by its own tenant
            rows = read.get_many(tx, asked)
        return {row.id: jobs.job_object(row) for row in rows}


def event_id(job: Job) -> str:
    """Names a state of a job: its generation, how many items wait and run, its state."""
    counts = job["counts"]
    return f"{job['generation']}.{counts['pending']}.{counts['running']}.{job['state']}"


def _state(job: Job | None) -> Any:
    return job and (job["generation"], job["state"], job["counts"])


def _event(job: Job) -> bytes:
    return b"id: %b\nevent: job\ndata: %b\n\n" % (event_id(job).encode(), orjson.dumps(job))
