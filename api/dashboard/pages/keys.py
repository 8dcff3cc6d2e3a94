"""Making, rotating and revoking keys, for admins. A secret is shown in the answer alone."""

import re
from typing import Annotated

from fastapi import Path, Request, Response

from api.context import ContextDep
from api.dashboard.auth.viewer import Administering, Form
from api.dashboard.rendering import forms, layout, page_router
from api.routes.admin import keys
from api.routes.admin.keys import KEY_ID
from api.schemas.admin import KeyRequest
from jobs.api_keys import OVERLAP_S, TENANT

router = page_router.router()
_DAY_S = 86_400.0
_KeyId = Annotated[str, Path(pattern=KEY_ID)]


@router.post("/keys")
def make(request: Request, shared: ContextDep, viewer: Administering, form: Form) -> Response:
    days = forms.number(form, "days")
    asked = {
        "tenant": form.get("tenant", "").strip(),
        "name": form.get("name", "").strip(),
        "role": form.get("role", "tenant"),
        "scopes": ["read"] if form.get("read_only") else None,
        "expires_in_s": None if days is None else days * _DAY_S,
    }
    key = keys.create(request, shared, viewer.caller, forms.checked(KeyRequest, asked))
    return layout.page(request, "key_made.html", viewer=viewer, key=key, instead_of="")


@router.post("/keys/{key_id}/rotate")
def rotate(
    request: Request, shared: ContextDep, viewer: Administering, form: Form, key_id: _KeyId
) -> Response:
    key = keys.rotate(request, shared, viewer.caller, key_id, OVERLAP_S)
    return layout.page(request, "key_made.html", viewer=viewer, key=key, instead_of=key_id)


@router.post("/keys/{key_id}/revoke")
def revoke(
    request: Request, shared: ContextDep, viewer: Administering, form: Form, key_id: _KeyId
) -> Response:
    keys.revoke_key(request, shared, viewer.caller, key_id)
    tenant = form.get("tenant", "")
    back = f"/tenants/{tenant}" if re.fullmatch(TENANT, tenant) else "/tenants"
    return layout.go(layout.PREFIX + back, f"{key_id} is revoked")
