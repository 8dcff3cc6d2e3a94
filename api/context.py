"""Objects that routes share for the life of an api process."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request

from api.auth.authenticator import Authenticator
from api.gateway.call_log import CallLog
from api.gateway.gateway import CallGateway
from api.gateway.inference import InferenceSession
from api.gateway.response_cache import ResponseCache
from api.gateway.routing.router import Router
from api.gateway.routing.shadow import ShadowCalls
from api.http.connections.connection import client_disconnected
from api.http.idempotency import Uploads
from api.services.call_list import CallList
from api.services.call_preparation import PREPARED_S, CallPreparation
from api.services.diagnostics import DiagnosticsService
from api.services.intake.call_bodies import CallBodies
from api.services.intake.free_space import FreeSpace
from api.services.intake.group_commit import GroupCommit
from api.services.intake.ingest_pool import IngestPool
from api.services.intake.upload_meter import UploadMeter
from api.services.job_watcher import JobWatcher
from api.services.reports import Reports
from api.services.resources import Resources
from api.services.single_flight import SingleFlight
from api.services.turns import TenantTurns
from api.services.worker_logs import WorkerLogs
from jobs.identity import Caller
from jobs.states import JobClass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Resources):
    """Everything that routes need; api/app.py builds, starts and stops it."""

    gateway: CallGateway  #: inference calls, through Redis
    router: Router  #: from the name of a model to the version that answers a call
    shadows: ShadowCalls  #: copies of calls for versions that are tried out
    call_preparation: CallPreparation  #: child processes that prepare large calls
    ingest_pool: IngestPool  #: child processes that take large bodies in
    job_watcher: JobWatcher  #: streams of jobs' progress
    response_cache: ResponseCache  #: responses of calls, by Idempotency-Key
    call_bodies: CallBodies  #: memory for bodies of calls
    upload_meter: UploadMeter  #: bytes that are coming in for jobs and files
    uploads: Uploads  #: bodies that are coming in under an Idempotency-Key
    authenticator: Authenticator  #: from a credential to a Caller
    reports: Reports  #: what the platform's processes report
    turns: TenantTurns  #: threads for reads and verbs, and the connections that they use
    submission_turns: TenantTurns  #: those for new jobs and files
    small_job_turns: TenantTurns  #: places in transactions of small jobs
    group_commit: GroupCommit  #: transactions that small jobs share
    call_log: CallLog  #: calls that ended within the last hour
    call_list: CallList  #: a list of those
    worker_logs: WorkerLogs  #: last lines of workers' logs
    diagnostics: DiagnosticsService  #: findings of `why`
    single_flight: SingleFlight  #: queries of probes and pages, which must not wait for long
    free_space: FreeSpace  #: of the disks that jobs and files are stored on

    @contextmanager
    def inference_session(
        self,
        request: Request,
        caller: Caller,
        job_class: JobClass,
        timeout_ms: int,
        since_s: float,
        response_headers: dict[str, str],
        call_id: str = "",
    ) -> Iterator[InferenceSession]:
        """Yields the session in which a request makes its calls; its body must have been read.

        A client that leaves withdraws its calls. call_id: of its only call; "": a new one each.
        """
        with client_disconnected(request.scope, request.receive) as left:
            yield InferenceSession(
                gateway=self.gateway,
                call_log=self.call_log,
                caller=caller,
                job_class=job_class,
                timeout_ms=timeout_ms,
                since_s=since_s,
                ready_s=request.scope.get(PREPARED_S, since_s),
                client_disconnected=left,
                response_headers=response_headers,
                call_id=call_id,
                shadows=self.shadows,
            )


async def _context(request: Request) -> Context:
    context: Context = request.app.state.context
    return context


ContextDep = Annotated[Context, Depends(_context)]
