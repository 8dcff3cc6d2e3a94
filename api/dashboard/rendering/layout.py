"""Layout of pages: templates, headers, navigation, notices."""

import base64
import binascii
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Depends, Request, Response
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, RedirectResponse

from api.context import Context, ContextDep
from api.dashboard.auth.viewer import Somebody, Viewer
from api.dashboard.rendering import assets, charts, formatting, live_updates
from api.dependencies import require
from api.http.compression import compress
from api.http.request_id import request_id
from api.http.security import PAGE_POLICY
from jobs.identity import Caller, Scope

PREFIX = "/dashboard"
NOTICE = "millrace_notice"
_POLICY = PAGE_POLICY.replace("form-action 'none'", "form-action 'self'") + (
    "; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",  # forms must send their origin
    "Cross-Origin-Opener-Policy": "same-origin",
}
_THEMES = ("light", "dark")
_NOTICE_S = 15
_MAX_NOTICE = 600


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of the navigation."""

    title: str
    path: str
    scope: Scope  #: required to see it


NAVIGATION = (
    Entry("Overview", PREFIX, "read"),
    Entry("Jobs", f"{PREFIX}/jobs", "read"),
    Entry("Calls", f"{PREFIX}/calls", "read"),
    Entry("Models", f"{PREFIX}/models", "read"),
    Entry("Rollouts", f"{PREFIX}/rollouts", "operate"),
    Entry("Pools", f"{PREFIX}/pools", "operate"),
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
for _shared in ("pieces", "ranges"):
    _templates.globals[_shared] = _templates.get_template(f"{_shared}.html").module


def render(
    request: Request, template: str, /, viewer: Viewer | None, status: int = 200, **values: Any
) -> Response:
    """Renders a page, or only its live parts; `viewer` None: not signed in."""
    values |= {"viewer": viewer, "request_id": request_id(request.scope)}
    if viewer and live_updates.is_event_stream(request):
        values["viewer"] = live_updates.with_placeholder(viewer)
        return live_updates.Parts(_live_parts(template, values))
    values |= {
        "navigation": [] if viewer is None else [e for e in NAVIGATION if viewer.may(e.scope)],
        "here": request.url.path,
        "theme": theme if (theme := request.cookies.get("millrace_theme")) in _THEMES else "",
        "notice": _notice(request),
    }
    html = _templates.get_template(template).render(values)
    # A page may hold secrets beside what others chose, but a browser sends its cookie to our own
    # requests only (SameSite=Strict): nobody else measures the length of what is compressed.
    body, coding = compress(html.encode(), request.headers.get("accept-encoding", ""))
    headers = HEADERS | ({"Content-Encoding": coding} if coding else {})
    response = HTMLResponse(body, status, headers | {"Vary": "Accept-Encoding"})
    if NOTICE in request.cookies:
        response.delete_cookie(NOTICE, path=PREFIX)
    return response


@dataclass(frozen=True, slots=True)
class Page:
    """Page that a viewer opens, or a form that they send."""

    request: Request
    context: Context
    viewer: Viewer

    @property
    def caller(self) -> Caller:
        """Caller whose rights the page has."""
        return self.viewer.caller

    @property
    def arguments(self) -> tuple[Request, Context, Caller]:
        """First arguments of the API's routes."""
        return self.request, self.context, self.caller

    def may(self, scope: Scope) -> bool:
        """Returns True if the viewer has the scope."""
        return self.viewer.may(scope)

    def render(self, template: str, /, **values: Any) -> Response:
        """Renders a template with these values."""
        return render(self.request, template, viewer=self.viewer, **values)


def _page(scope: Scope) -> Callable[..., AsyncIterator[Page]]:
    async def check(request: Request, context: ContextDep, viewer: Somebody) -> AsyncIterator[Page]:
        require(viewer.caller, scope)
        async with context.turns.place(viewer.caller.tenant):
            yield Page(request, context, viewer)

    return check


def _page_without_place(scope: Scope) -> Callable[..., Awaitable[Page]]:
    async def check(request: Request, context: ContextDep, viewer: Somebody) -> Page:
        require(viewer.caller, scope)
        return Page(request, context, viewer)

    return check


ReaderPage = Annotated[Page, Depends(_page("read"), scope="function")]
SubmitterPage = Annotated[Page, Depends(_page("submit"), scope="function")]
OperatorPage = Annotated[Page, Depends(_page("operate"), scope="function")]
AdminPage = Annotated[Page, Depends(_page("admin"), scope="function")]
#: Pages whose form has a file, or makes a call: they take no place meanwhile.
UploaderPage = Annotated[Page, Depends(_page_without_place("submit"))]
CallerPage = Annotated[Page, Depends(_page_without_place("infer"))]


def _live_parts(template: str, values: dict[str, Any]) -> dict[str, str]:
    source = _templates.get_template(template)
    context = source.new_context(values)
    return {
        name: "".join(block(context)) for name, block in source.blocks.items()
        if name.startswith("live_")
    }  # fmt: skip


def redirect(path: str, notice: str = "") -> Response:
    """Redirects after a form to a page that shows a notice once."""
    response = RedirectResponse(path, 303, HEADERS)
    if notice:
        text = base64.urlsafe_b64encode(notice.encode()[:_MAX_NOTICE]).decode()
        response.set_cookie(
            NOTICE, text, max_age=_NOTICE_S, path=PREFIX, httponly=True, samesite="strict"
        )
    return response


def _notice(request: Request) -> str:
    try:
        raw = base64.urlsafe_b64decode(request.cookies.get(NOTICE, ""))
    except (binascii.Error, ValueError):
        return ""
    return raw.decode(errors="replace")[:_MAX_NOTICE]


def to_sign_in(path: str) -> str:
    """Returns the path of the sign-in that leads back to `path`."""
    return f"{PREFIX}/sign-in?next={quote(path, safe='')}"
