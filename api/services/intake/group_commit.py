"""Group commit: small jobs that arrive while a transaction is under way share the next one."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

from sqlalchemy import Engine as Database

from api import background
from jobs.store.jobs.idempotency import StoredResponse
from jobs.store.jobs.read import JobRow
from jobs.store.notifier import WorkNotifier
from jobs.usecases.submit import Submission
from jobs.usecases.submit_together import Outcome, store_together

_Waiting = tuple[Submission, "asyncio.Future[Outcome]"]


class GroupCommit:
    """Stores small jobs, those of concurrent requests together; a job that comes alone doesn't
    wait. Its caller bounds how many wait (`TenantTurns`). Every method runs on the event loop."""

    def __init__(self, database: Database, notifier: WorkNotifier) -> None:
        self._database, self._notifier = database, notifier
        self._waiting: list[_Waiting] = []
        self._thread = ThreadPoolExecutor(1, "api-commit")
        self._running: asyncio.Task[None] | None = None

    async def store(self, submission: Submission) -> JobRow | StoredResponse:
        """Returns the job's row, or the response that its Idempotency-Key has, once committed.

        Closes the submission. Raises what refuses the job. It is stored even where the request is
        cancelled meanwhile.
        """
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting.append((submission, outcome))
        if self._running is None:
            self._running = background.spawn("group commit", self._run())
        found = await outcome
        if isinstance(found, Exception):
            raise found
        return found

    async def stop(self) -> None:
        """Stores what waits."""
        if self._running:
            await self._running
        self._thread.shutdown()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            group, self._waiting = self._waiting, []
            submissions = [submission for submission, _ in group]
            try:
                outcomes = await loop.run_in_executor(
                    self._thread, store_together, self._database, submissions, self._notifier
                )
            except Exception as error:  # each request is told; later ones are stored
                outcomes = [error] * len(group)
            for (_, future), outcome in zip(group, outcomes, strict=True):
                if not future.done():
                    future.set_result(outcome)
        self._running = None
