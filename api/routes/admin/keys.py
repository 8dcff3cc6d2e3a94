"""API keys of every tenant, for admins."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from api.auth import audit
from api.context import Context, Shared
from api.dependencies import Admin
from api.http.responses import json_response
from api.schemas import examples
from api.schemas.admin import Key, KeyOverlap, KeyPage, KeyRequest, MadeKey
from jobs import ids
from jobs.api_keys import TENANT, NewKey
from jobs.identity import Caller
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import api_keys as store
from jobs.views.tenants import key_object

router = APIRouter(tags=["keys"])

KEY_ID = ids.pattern("key")
_KeyId = Annotated[str, Path(description="key_…", pattern=KEY_ID, examples=[examples.KEY_ID])]


@router.post("/keys", status_code=201, response_model=MadeKey)
def create_key(request: Request, shared: Shared, caller: Admin, asked: KeyRequest) -> Response:
    """Makes a key, and shows it this once."""
    return _made(make(request, shared, caller, asked))


def make(request: Request, shared: Context, caller: Caller, asked: KeyRequest) -> dict[str, Any]:
    """The key, with its secret. Raises Invalid, Conflict."""
    new = NewKey(
        asked.tenant,
        asked.name,
        asked.role,
        None if asked.scopes is None else frozenset(asked.scopes),
        asked.expires_in_s,
    )
    with shared.acting(EVERYBODY) as tx:
        row = store.create(tx, new)
        found = key_object(row)
        rights = {"role": found["role"], "scopes": found["scopes"]}
        audit.record(tx, request, caller, "key.create", found["id"], new.tenant, **rights)
    return {"key": new.secret, **found}


@router.get("/keys", response_model=KeyPage)
def list_keys(
    shared: Shared,
    caller: Admin,
    tenant: Annotated[str | None, Query(pattern=TENANT)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=KEY_ID)
    ] = None,
) -> Response:
    """Newest first, with those that are revoked or have expired."""
    since = ids.parse("key", after) if after else None
    with shared.acting(EVERYBODY) as tx:
        rows = store.page(tx, tenant or EVERYBODY, since, limit + 1)
    found = [key_object(row) for row in rows[:limit]]
    more = found[-1]["id"] if len(rows) > limit else None
    return json_response({"data": found, "next": more})


@router.get("/keys/{key_id}", response_model=Key)
def get_key(shared: Shared, caller: Admin, key_id: _KeyId) -> Response:
    """What is known of it; `last_used_at` to the minute."""
    with shared.acting(EVERYBODY) as tx:
        return json_response(key_object(store.get(tx, EVERYBODY, ids.parse("key", key_id))))


@router.post("/keys/{key_id}/rotate", status_code=201, response_model=MadeKey)
def rotate_key(
    request: Request, shared: Shared, caller: Admin, key_id: _KeyId,
    asked: KeyOverlap | None = None,
) -> Response:  # fmt: skip
    """Makes a new key in its place, with the same rights and as long a life, and shows it this
    once. The one before it goes on for `overlap_s`."""
    overlap_s = (asked or KeyOverlap()).overlap_s
    return _made(rotate(request, shared, caller, key_id, overlap_s))


def rotate(
    request: Request, shared: Context, caller: Caller, key_id: str, overlap_s: float
) -> dict[str, Any]:
    """The new key, with its secret. Raises NotFound, Conflict."""
    with shared.acting(EVERYBODY) as tx:
        row, secret = store.rotate(tx, EVERYBODY, ids.parse("key", key_id), overlap_s)
        how = {"replaced_by": ids.show("key", row.id), "overlap_s": overlap_s}
        audit.record(tx, request, caller, "key.rotate", key_id, row.tenant_id, **how)
    return {"key": secret, **key_object(row)}


@router.delete("/keys/{key_id}", status_code=204, response_class=Response)
def revoke_key(request: Request, shared: Shared, caller: Admin, key_id: _KeyId) -> Response:
    """For ever, and at once."""
    with shared.acting(EVERYBODY) as tx:
        row = store.get(tx, EVERYBODY, ids.parse("key", key_id))
        store.revoke(tx, EVERYBODY, row.id)
        audit.record(tx, request, caller, "key.revoke", key_id, row.tenant_id)
    return Response(status_code=204)


def _made(key: dict[str, Any]) -> Response:
    return json_response(key, 201, {"Location": f"/keys/{key['id']}"})
