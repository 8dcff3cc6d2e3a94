"""API keys of all tenants, for admins."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from api.auth import audit
from api.context import Context, ContextDep
from api.dependencies import Admin
from api.schemas import common
from api.schemas.admin import CreatedKey, Key, KeyOverlap, KeyPage, KeyRequest
from jobs import ids
from jobs.api_keys import TENANT, NewKey
from jobs.identity import Caller
from jobs.store.tenancy import EVERYBODY
from jobs.store.tenants import api_keys as store
from jobs.views.tenants import key_object

router = APIRouter(tags=["keys"])

KEY_ID = ids.pattern("key")
_KeyId = Annotated[str, Path(description="key_…", pattern=KEY_ID, examples=[common.KEY_ID])]


@router.post("/keys", status_code=201)
def create_key(
    request: Request, response: Response, context: ContextDep, caller: Admin, body: KeyRequest
) -> CreatedKey:
    """Makes a key. The response shows it once; it can't be read again."""
    return _created(response, create(request, context, caller, body))


def create(request: Request, context: Context, caller: Caller, body: KeyRequest) -> dict[str, Any]:
    """Makes a key. Returns the key object with its secret. Raises Invalid, Conflict."""
    new_key = NewKey(
        body.tenant,
        body.name,
        body.role,
        None if body.scopes is None else frozenset(body.scopes),
        body.expires_in_s,
    )
    with context.acting(EVERYBODY) as tx:
        row = store.create(tx, new_key)
        key = key_object(row)
        rights = {"role": key["role"], "scopes": key["scopes"]}
        audit.record(tx, request, caller, "key.create", key["id"], new_key.tenant, **rights)
    return {"key": new_key.secret, **key}


@router.get("/keys")
def list_keys(
    context: ContextDep,
    caller: Admin,
    tenant: Annotated[str | None, Query(pattern=TENANT)] = None,
    limit: Annotated[int, Query(ge=1, le=500)] = 50,
    after: Annotated[
        str | None, Query(description="`next` of the page before", pattern=KEY_ID)
    ] = None,
) -> KeyPage:
    """Lists keys, newest first, including revoked and expired ones."""
    before = ids.parse("key", after) if after else None
    with context.acting(EVERYBODY) as tx:
        rows = store.page(tx, tenant or EVERYBODY, before, limit + 1)
    key = [key_object(row) for row in rows[:limit]]
    more = key[-1]["id"] if len(rows) > limit else None
    return KeyPage.model_validate({"data": key, "next": more})


@router.get("/keys/{key_id}")
def get_key(context: ContextDep, caller: Admin, key_id: _KeyId) -> Key:
    """Returns a key without its secret; `last_used_at` is exact to the minute."""
    with context.acting(EVERYBODY) as tx:
        row = store.get(tx, EVERYBODY, ids.parse("key", key_id))
    return Key.model_validate(key_object(row))


@router.post("/keys/{key_id}/rotate", status_code=201)
def rotate_key(
    request: Request,
    response: Response,
    context: ContextDep,
    caller: Admin,
    key_id: _KeyId,
    body: KeyOverlap | None = None,
) -> CreatedKey:
    """Makes a new key with the same rights and lifetime, and shows it once. The old key stays
    valid for `overlap_s`."""
    overlap_s = (body or KeyOverlap()).overlap_s
    return _created(response, rotate(request, context, caller, key_id, overlap_s))


def rotate(
    request: Request, context: Context, caller: Caller, key_id: str, overlap_s: float
) -> dict[str, Any]:
    """Makes the new key. Returns the key object with its secret. Raises NotFound, Conflict."""
    with context.acting(EVERYBODY) as tx:
        row, secret = store.rotate(tx, EVERYBODY, ids.parse("key", key_id), overlap_s)
        detail = {"replaced_by": ids.show("key", row.id), "overlap_s": overlap_s}
        audit.record(tx, request, caller, "key.rotate", key_id, row.tenant_id, **detail)
    return {"key": secret, **key_object(row)}


@router.delete("/keys/{key_id}", status_code=204, response_class=Response)
def revoke_key(request: Request, context: ContextDep, caller: Admin, key_id: _KeyId) -> Response:
    """Revokes a key at once, for ever."""
    with context.acting(EVERYBODY) as tx:
        row = store.get(tx, EVERYBODY, ids.parse("key", key_id))
        store.revoke(tx, EVERYBODY, row.id)
        audit.record(tx, request, caller, "key.revoke", key_id, row.tenant_id)
    return Response(status_code=204)


def _created(response: Response, key: dict[str, Any]) -> CreatedKey:
    response.headers["Location"] = f"/keys/{key['id']}"
    return CreatedKey.model_validate(key)
