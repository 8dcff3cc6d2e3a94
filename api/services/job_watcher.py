"""Progress of jobs as server-sent events; one query serves all watchers."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import Engine as Database
from starlette.concurrency import run_in_threadpool

from api import background
from jobs import ids
from jobs.blobs.lines import one_line
from jobs.states import TERMINAL
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.jobs import read
from jobs.store.tenancy import EVERYBODY, acting
from jobs.views import jobs

_log = logging.getLogger(__name__)
_POLL_S = 0.5
_HEARTBEAT_S = 15.0
_RETRY = b"retry: 2000\n\n"  # ms until a client reconnects
_HEARTBEAT = b": still here\n\n"

Job = dict[str, Any]


async def _always() -> bool:
    return True


@dataclass(eq=False, slots=True)
class _Watch:
    """One client's stream. It gets the latest state when it can take it, and skips those in
    between."""

    latest: Job | None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def show(self, job: Job | None) -> None:
        """Sets the latest state; None ends the stream."""
        if _state(job) != _state(self.latest):
            self.latest = job
            self.changed.set()

    async def wait(self) -> bool:
        """Waits for a change. Returns False when a heartbeat is due."""
        try:
            async with asyncio.timeout(_HEARTBEAT_S):
                await self.changed.wait()
        except TimeoutError:
            return False
        self.changed.clear()
        return True


class JobWatcher:
    """Jobs that clients of this process watch. A client costs no thread and no connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._watches: dict[UUID, set[_Watch]] = {}
        self._watched = asyncio.Event()
        self._closed = False
        self._poller: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Starts to poll the database."""
        self._poller = background.keep("watched jobs", self._run)

    def close(self) -> None:
        """Ends every stream: the process stops, and clients reconnect to another."""
        self._closed = True
        self._watched.set()
        for watches in self._watches.values():
            for watch in watches:
                watch.show(None)

    async def stop(self) -> None:
        """Ends after the query in flight, since its thread has a connection."""
        self.close()
        if self._poller:
            await self._poller

    def watching(self) -> int:
        """Returns the number of open streams."""
        return sum(map(len, self._watches.values()))

    async def stream(
        self, job: Job, allowed: Callable[[], Awaitable[bool]] = _always
    ) -> AsyncGenerator[bytes, None]:
        """Yields the job's state now and on each change, until it is terminal.

        `allowed` is asked before each event, so that a key that ends, ends the stream.
        """
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

    async def _run(self) -> None:
        await self._watched.wait()
        while not self._closed:
            await self._poll()
            await asyncio.sleep(_POLL_S)
            if not self._watches and not self._closed:
                self._watched.clear()
            await self._watched.wait()

    async def _poll(self) -> None:
        watched = list(self._watches)
        try:
            latest = await run_in_threadpool(self._read, watched)
        except CONNECTION_ERRORS as error:
            _log.warning("can't look at watched jobs: %s", error)
            return
        for id in watched:
            for watch in self._watches.get(id, ()):
                watch.show(latest.get(id))

    def _read(self, watched: Sequence[UUID]) -> dict[UUID, Job]:
        with acting(self._database, EVERYBODY) as tx:  # each was found by its own tenant
            rows = read.get_many(tx, watched)
        return {row.id: jobs.job_object(row) for row in rows}


def event_id(job: Job) -> str:
    """Returns an id of a job's state: generation, pending and running items, state."""
    counts = job["counts"]
    return f"{job['generation']}.{counts['pending']}.{counts['running']}.{job['state']}"


def _state(job: Job | None) -> Any:
    return job and (job["generation"], job["state"], job["counts"])


def _event(job: Job) -> bytes:
    data = one_line(orjson.dumps(job))
    return b"id: %b\nevent: job\ndata: %b\n\n" % (event_id(job).encode(), data)
