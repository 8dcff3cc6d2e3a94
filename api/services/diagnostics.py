"""Findings of `why`, from the processes' last minute and the database.

The database may be the cause: no request waits for it longer than a second, and its silence is a
fact like others.
"""

import asyncio
from dataclasses import replace

from starlette.concurrency import run_in_threadpool

from api.services.reports import Reports
from api.services.resources import Resources
from jobs import clock
from jobs.explain import Diagnosis, Facts, diagnose
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.monitoring import diagnostics
from jobs.store.monitoring.observations import LockWait, Observations
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.reports.reports import ReportSet

_DATABASE_WAIT_S = 1.0
_TTL_S = 1.0  #: Requests within this time share one result.


class DiagnosticsService:
    """Collects facts and judges them; puts one question at a time to the database, however many
    ask."""

    def __init__(self, resources: Resources, reports: Reports) -> None:
        self._resources, self._reports = resources, reports
        self._query: asyncio.Task[Observations] | None = None
        self._queried_s = 0.0
        self._observations = Observations()
        self._result = self._diagnose(ReportSet(()), 0.0)
        self._until_s = 0.0
        self._lock = asyncio.Lock()

    async def diagnoses(self) -> list[Diagnosis]:
        """Returns the findings, the most severe first."""
        return (await self._current())[1]

    async def facts(self) -> Facts:
        """Returns the facts that the findings are drawn from."""
        return (await self._current())[0]

    async def _current(self) -> tuple[Facts, list[Diagnosis]]:
        async with self._lock:
            if clock.monotonic() > self._until_s:
                reading = await self._reports.read()
                unanswered_s = await self._observe()
                # Takes milliseconds with many models and processes: on a thread.
                self._result = await asyncio.to_thread(self._diagnose, reading, unanswered_s)
                self._until_s = clock.monotonic() + _TTL_S
            return self._result

    def _diagnose(self, reading: ReportSet, unanswered_s: float) -> tuple[Facts, list[Diagnosis]]:
        silent_s = self._reports.unanswered_s
        facts = Facts.from_reports(
            reading, self._resources.models, self._observations, unanswered_s, silent_s
        )
        return facts, diagnose(facts)

    async def _observe(self) -> float:
        """Queries the database. Returns seconds without an answer; 0 if it answered."""
        if self._query is None:
            self._queried_s = clock.monotonic()
            self._query = asyncio.create_task(run_in_threadpool(self._read_database))
        done, _ = await asyncio.wait({self._query}, timeout=_DATABASE_WAIT_S)
        waiting_s = clock.monotonic() - self._queried_s
        if not done:
            # Earlier locks are stale.
            self._observations = replace(self._observations, locks=LockWait())
            return waiting_s
        query, self._query = self._query, None
        if query.exception():
            return max(_DATABASE_WAIT_S, waiting_s)
        self._observations = query.result()
        return 0.0

    def _read_database(self) -> Observations:
        """Reads locks first: other queries may wait for one. Raises CONNECTION_ERRORS."""
        with self._resources.acting(EVERYBODY) as tx:
            locks = diagnostics.locks(tx)
        try:
            with self._resources.acting(EVERYBODY) as tx:
                diagnostics.set_statement_timeout(tx)
                silent_s = 2 * self._resources.settings.lease_s
                return replace(diagnostics.observations(tx, silent_s), locks=locks)
        except CONNECTION_ERRORS:
            if not locks.waiting:
                raise
            return replace(self._observations, locks=locks)
