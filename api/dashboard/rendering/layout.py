"""What every page of the dashboard has around it."""

import base64
import binascii
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from fastapi import Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from api.dashboard.auth.viewer import Viewer
from api.dashboard.rendering import assets, charts, formatting, live_updates
from api.http.request_id import request_id
from api.http.security import PAGE_POLICY
from jobs.identity import Scope

PREFIX = "/dashboard"
SAID = "millrace_said"
_POLICY = PAGE_POLICY.replace("form-action 'none'", "form-action 'self'") + (
    "; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",  # or a form of ours would not say whose it is
    "Cross-Origin-Opener-Policy": "same-origin",
}
_THEMES = ("light", "dark")
_SAID_S = 15
_MOST_SAID = 600


@dataclass(frozen=True, slots=True)
class Entry:
    """Of the navigation: shown to whoever has the scope."""

    title: str
    path: str
    scope: Scope


NAVIGATION = (
    Entry("Overview", PREFIX, "read"),
    Entry("Jobs", f"{PREFIX}/jobs", "read"),
    Entry("Models", f"{PREFIX}/models", "read"),
    Entry("Workers", f"{PREFIX}/workers", "operate"),
    Entry("Tenants", f"{PREFIX}/tenants", "operate"),
    Entry("Webhooks", f"{PREFIX}/webhooks", "read"),
    Entry("Audit", f"{PREFIX}/audit", "admin"),
)

_templates = Environment(
    loader=PackageLoader("api.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
_templates.globals.update(
    static=assets.url, prefix=PREFIX, charts=charts, why_launched=formatting.REASONS
)
_templates.filters.update(formatting.FILTERS)
_templates.globals["pieces"] = _templates.get_template("pieces.html").module


def page(
    request: Request, template: str, /, viewer: Viewer | None, status: int = 200, **values: Any
) -> Response:
    """The page, or only those parts of it that are live. viewer: None: nobody is signed in."""
    values |= {"viewer": viewer, "request_id": request_id(request.scope)}
    if viewer and live_updates.is_asked_for(request):
        values["viewer"] = live_updates.shared_by_many(viewer)
        return live_updates.Parts(_live_parts(template, values))
    values |= {
        "navigation": [] if viewer is None else [e for e in NAVIGATION if viewer.may(e.scope)],
        "here": request.url.path,
        "theme": theme if (theme := request.cookies.get("millrace_theme")) in _THEMES else "",
        "said": _said(request),
    }
    html = _templates.get_template(template).render(values)
    response = HTMLResponse(html, status, HEADERS)
    if SAID in request.cookies:
        response.delete_cookie(SAID, path=PREFIX)
    return response


def _live_parts(template: str, values: dict[str, Any]) -> dict[str, str]:
    found = _templates.get_template(template)
    context = found.new_context(values)
    return {
        name: "".join(block(context)) for name, block in found.blocks.items()
        if name.startswith("live_")
    }  # fmt: skip


def go(path: str, said: str = "") -> Response:
    """After a form: on to this page, which says once what was done."""
    response = RedirectResponse(path, 303, HEADERS)
    if said:
        text = base64.urlsafe_b64encode(said.encode()[:_MOST_SAID]).decode()
        response.set_cookie(
            SAID, text, max_age=_SAID_S, path=PREFIX, httponly=True, samesite="strict"
        )
    return response


def _said(request: Request) -> str:
    try:
        raw = base64.urlsafe_b64decode(request.cookies.get(SAID, ""))
    except (binascii.Error, ValueError):
        return ""
    return raw.decode(errors="replace")[:_MOST_SAID]


def to_sign_in(path: str) -> str:
    """Where to sign in, and then come back to this page."""
    return f"{PREFIX}/sign-in?next={quote(path, safe='')}"
