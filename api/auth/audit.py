"""What routes note in the audit log: who did what to whose things, and under which request id."""

from typing import Any

from fastapi import Request

from api.http.request_id import request_id
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.tenants import audit

_MOST_CHARACTERS = 200


def record(
    tx: Tx, request: Request, caller: Caller, act: str, target: str, tenant: str = "", **detail: Any
) -> None:
    """In the transaction of the act. tenant: whose things it was done to, where not the caller's
    own. detail: ids, names and states alone; no payload, no secret."""
    theirs = request.headers.get("x-request-id", "")
    if theirs:  # which proves nothing, and helps a client to find its own
        detail["client_request_id"] = theirs[:_MOST_CHARACTERS]
    audit.record(
        tx,
        tenant=tenant or caller.tenant,
        actor=caller.actor,
        act=act,
        target=target,
        detail=detail,
        request_id=request_id(request.scope),
    )
