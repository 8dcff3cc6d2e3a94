"""Entries of the audit log, as routes record them."""

from collections import OrderedDict
from threading import Lock
from typing import Any

from fastapi import Request

from api.http.request_id import request_id
from jobs import clock
from jobs.identity import Caller
from jobs.store.db import Tx
from jobs.store.tenants import audit

_MAX_CLIENT_ID = 200
_AGAIN_S = 60.0
_MOST_RECENT = 10_000  # pages of viewers; one beyond that is recorded more often
#: State of a request that renders a live page again; its stream was charged.
UPDATES = "updates"


def record(
    tx: Tx,
    request: Request,
    caller: Caller,
    action: str,
    target: str,
    tenant: str = "",
    **detail: Any,
) -> None:
    """Records an act in its own transaction; see `entry`."""
    audit.record(tx, **entry(request, caller, action, target, tenant, **detail))


def entry(
    request: Request, caller: Caller, action: str, target: str, tenant: str = "", **detail: Any
) -> dict[str, Any]:
    """Returns the entry of an act, for `jobs.store.tenants.audit.record` where no request is.

    `tenant` owns the target where that is not the caller's tenant. `detail` holds ids, names and
    states only: no payload, no secret.
    """
    client_id = request.headers.get("x-request-id", "")
    if client_id:  # which proves nothing, and helps a client to find its own
        detail["client_request_id"] = client_id[:_MAX_CLIENT_ID]
    return {
        "tenant": tenant or caller.tenant,
        "actor": caller.actor,
        "act": action,
        "target": target,
        "detail": detail,
        "request_id": request_id(request.scope),
    }


class PayloadReads:
    """Reads of other tenants' payloads: each is recorded, a live page that is rendered again once
    a minute."""

    def __init__(self) -> None:
        self._recent: OrderedDict[tuple[str, str], float] = OrderedDict()
        self._lock = Lock()

    def record(
        self, tx: Tx, request: Request, caller: Caller, target: str, tenant: str, **detail: Any
    ) -> bool:
        """Records that the caller reads payloads of `target`, in the transaction that reads them.

        tenant: their owner, another one than the caller's; "*": all. Returns False where the
        request renders a live page again that was recorded within the last minute.
        """
        if self._is_recorded(request, caller):
            return False
        route = f"{request.method} {request.scope['route'].path}"
        record(tx, request, caller, "payload.read", target, tenant, route=route, **detail)
        return True

    def remember(self, request: Request, caller: Caller) -> None:
        """Remembers a read that was recorded, once its transaction has committed."""
        with self._lock:
            self._recent[_page(request, caller)] = clock.monotonic()
            self._recent.move_to_end(_page(request, caller))
            if len(self._recent) > _MOST_RECENT:
                self._recent.popitem(last=False)

    def _is_recorded(self, request: Request, caller: Caller) -> bool:
        if not getattr(request.state, UPDATES, False):
            return False
        since_s = self._recent.get(_page(request, caller))
        return since_s is not None and clock.monotonic() < since_s + _AGAIN_S


def _page(request: Request, caller: Caller) -> tuple[str, str]:
    return caller.actor, str(request.url)


payload_reads = PayloadReads()
