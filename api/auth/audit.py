"""Entries of the audit log, as routes record them."""

from typing import Any

from fastapi import Request

from api.http.request_id import request_id
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.tenants import audit

_MAX_CLIENT_ID = 200


def record(
    tx: Tx,
    request: Request,
    caller: Caller,
    action: str,
    target: str,
    tenant: str = "",
    **detail: Any,
) -> None:
    """Records an act in its own transaction.

    `tenant` owns the target where that is not the caller's tenant. `detail` holds ids, names and
    states only: no payload, no secret.
    """
    client_id = request.headers.get("x-request-id", "")
    if client_id:  # which proves nothing, and helps a client to find its own
        detail["client_request_id"] = client_id[:_MAX_CLIENT_ID]
    audit.record(
        tx,
        tenant=tenant or caller.tenant,
        actor=caller.actor,
        act=action,
        target=target,
        detail=detail,
        request_id=request_id(request.scope),
    )
