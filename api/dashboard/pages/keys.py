"""Creation, rotation and revocation of keys, for admins. A secret is shown only once."""

import re
from typing import Annotated

from fastapi import Path, Response

from api.dashboard.auth.viewer import Form
from api.dashboard.rendering import forms, layout, page_router
from api.http.errors import validated
from api.routes.admin import keys
from api.routes.admin.keys import KEY_ID
from api.schemas.admin import KeyRequest
from jobs.api_keys import OVERLAP_S, TENANT

router = page_router.router()
_DAY_S = 86_400.0
_KeyId = Annotated[str, Path(pattern=KEY_ID)]


@router.post("/keys")
def make(page: layout.AdminPage, form: Form) -> Response:
    """Creates a key."""
    days = forms.number(form, "days")
    body = {
        "tenant": form.get("tenant", "").strip(),
        "name": form.get("name", "").strip(),
        "role": form.get("role", "tenant"),
        "scopes": ["read"] if form.get("read_only") else None,
        "expires_in_s": None if days is None else days * _DAY_S,
    }
    key = keys.create(*page.arguments, validated(KeyRequest, body))
    return page.render("key_made.html", key=key, instead_of="")


@router.post("/keys/{key_id}/rotate")
def rotate(page: layout.AdminPage, form: Form, key_id: _KeyId) -> Response:
    """Rotates a key."""
    key = keys.rotate(*page.arguments, key_id, OVERLAP_S)
    return page.render("key_made.html", key=key, instead_of=key_id)


@router.post("/keys/{key_id}/revoke")
def revoke(page: layout.AdminPage, form: Form, key_id: _KeyId) -> Response:
    """Revokes a key."""
    keys.revoke_key(*page.arguments, key_id)
    tenant = form.get("tenant", "")
    back = f"/tenants/{tenant}" if re.fullmatch(TENANT, tenant) else "/tenants"
    return layout.redirect(layout.PREFIX + back, f"{key_id} is revoked")
