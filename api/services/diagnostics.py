"""What is the matter now: the processes' last minute and what the database says, read together.

The database may be what is the matter: nobody waits for it longer than a second, and that it gives
no answer is a fact like any other."""

import asyncio
from dataclasses import replace

from fastapi.concurrency import run_in_threadpool

from api.services.reports import Reports
from api.services.resources import Resources
from jobs import clock
from jobs.explain import Diagnosis, Facts, diagnose
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.monitoring import diagnostics
from jobs.store.monitoring.observations import LockWait, Observations
from jobs.store.tenancy import EVERYBODY
from jobs.telemetry.reports.reports import ReportSet

_PATIENCE_S = 1.0
_KEPT_S = 1.0
"""Who asks again within this time is told the same."""


class DiagnosticsService:
    """One question at a time is put to the database, however many ask."""

    def __init__(self, shared: Resources, reports: Reports) -> None:
        self._shared, self._reports = shared, reports
        self._asking: asyncio.Task[Observations] | None = None
        self._asked_s = 0.0
        self._seen = Observations()
        self._found = self._judge(ReportSet(()), 0.0)
        self._until_s = 0.0
        self._turn = asyncio.Lock()

    async def diagnoses(self) -> list[Diagnosis]:
        """The most severe first."""
        return (await self._known())[1]

    async def facts(self) -> Facts:
        """What they are drawn from."""
        return (await self._known())[0]

    async def _known(self) -> tuple[Facts, list[Diagnosis]]:
        async with self._turn:
            if clock.monotonic() > self._until_s:
                reading = await self._reports.read()
                unanswered_s = await self._look()
                # On a thread: of many models and processes it takes some milliseconds.
                self._found = await asyncio.to_thread(self._judge, reading, unanswered_s)
                self._until_s = clock.monotonic() + _KEPT_S
            return self._found

    def _judge(self, reading: ReportSet, unanswered_s: float) -> tuple[Facts, list[Diagnosis]]:
        silent_s = self._reports.unanswered_s
        facts = Facts.from_reports(reading, self._shared.models, self._seen, unanswered_s, silent_s)
        return facts, diagnose(facts)

    async def _look(self) -> float:
        """For how long the database has owed an answer; 0: it gave one."""
        if self._asking is None:
            self._asked_s = clock.monotonic()
            self._asking = asyncio.create_task(run_in_threadpool(self._ask))
        done, _ = await asyncio.wait({self._asking}, timeout=_PATIENCE_S)
        owed_s = clock.monotonic() - self._asked_s
        if not done:
            self._seen = replace(self._seen, locks=LockWait())  # those of before say nothing
            return owed_s
        asked, self._asking = self._asking, None
        if asked.exception():
            return max(_PATIENCE_S, owed_s)
        self._seen = asked.result()
        return 0.0

    def _ask(self) -> Observations:
        """Locks first: what else is asked may have to wait for one. Raises AWAY."""
        with self._shared.acting(EVERYBODY) as tx:
            locks = diagnostics.locks(tx)
        try:
            with self._shared.acting(EVERYBODY) as tx:
                diagnostics.set_statement_timeout(tx)
                silent_s = 2 * self._shared.settings.lease_s
                return replace(diagnostics.observations(tx, silent_s), locks=locks)
        except CONNECTION_ERRORS:
            if not locks.waiting:
                raise
            return replace(self._seen, locks=locks)
