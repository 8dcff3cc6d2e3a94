"""Signing in with a key or at an identity provider, and out."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from api.context import Context, ContextDep
from api.dashboard.auth import oidc_login, sessions, viewer
from api.dashboard.auth.viewer import Form
from api.dashboard.rendering import layout, page_router
from jobs import api_keys
from jobs.errors import Forbidden, MillraceError, NotFound, Unauthenticated

router = page_router.router()

_BEGUN = "millrace_sign_in"
_OWNER = "dashboard sign-in"
_BEGUN_S = 600.0
_MOST_NEXT = 2000


@router.get("/sign-in")
async def sign_in(
    request: Request,
    shared: ContextDep,
    next: Annotated[str, Query(max_length=_MOST_NEXT)] = layout.PREFIX,
) -> Response:
    """The form; whoever is signed in, or needn't, goes on."""
    try:
        await viewer.recognize_viewer(request, shared)
    except MillraceError as error:
        if not isinstance(error, Unauthenticated):
            raise
        return form(request, shared, next)
    return layout.go(inside(next))


def form(
    request: Request, shared: Context, next: str, problem: str = "", status: int = 200
) -> Response:
    """With a token that a cookie holds too: no other site signs a browser in."""
    id = sessions.new_id()
    token = sessions.form_token(id, shared.settings)
    response = layout.page(
        request, "sign_in.html", viewer=None, status=status, token=token, next=inside(next),
        problem=problem, oidc=bool(shared.settings.oidc_client_id),
    )  # fmt: skip
    sessions.set_cookie(response, _BEGUN, id, _BEGUN_S, _is_https(request, shared))
    return response


@router.post("/sign-in")
async def sign_in_by_key(request: Request, shared: ContextDep) -> Response:
    """A key that is none is as slow, and as bounded, as at any other route."""
    viewer.refuse_other_sites(request)
    sent = await viewer.fields(request)
    expected = sessions.form_token(request.cookies.get(_BEGUN, ""), shared.settings)
    if not sessions.same_token(sent.get("token", ""), expected):
        raise Forbidden("this form has expired; go back, load the page, and try again")
    key, next = sent.get("key", "").strip(), sent.get("next", "")
    if not api_keys.is_key(key):
        problem = "That is not an API key: one begins with mk_ and has 46 characters."
        return form(request, shared, next, problem, 401)
    return await _signed_in(request, shared, key, next)


async def _signed_in(request: Request, shared: Context, credential: str, next: str) -> Response:
    headers = viewer.with_credential(request.scope["headers"], credential)
    try:
        caller = await shared.authenticator.authenticate(headers)
    except Unauthenticated:
        problem = "This key is unknown, expired or revoked."
        return form(request, shared, next, problem, 401)
    response, https = layout.go(inside(next)), _is_https(request, shared)
    sessions.keep(response, sessions.begin(credential, caller), shared.settings, https)
    sessions.set_cookie(response, _BEGUN, "", 0, https)
    return response


@router.get("/sign-in/oidc")
async def sign_in_elsewhere(
    request: Request,
    shared: ContextDep,
    next: Annotated[str, Query(max_length=_MOST_NEXT)] = layout.PREFIX,
) -> Response:
    """On to the identity provider."""
    if not shared.settings.oidc_client_id:
        raise NotFound("no identity provider is configured: MILLRACE_OIDC_CLIENT_ID")
    begun = oidc_login.begin(inside(next))
    found = oidc_login.provider_of(shared.settings)
    url = await run_in_threadpool(found.sign_in_url, begun, _back(request, shared))
    response = RedirectResponse(url, 303, layout.HEADERS)
    sealed = sessions.sealed(asdict(begun), shared.settings, _OWNER)
    # Lax: the browser comes back from elsewhere.
    https = _is_https(request, shared)
    sessions.set_cookie(response, _BEGUN, sealed, _BEGUN_S, https, "lax")
    return response


@router.get("/sign-in/back")
async def come_back(
    request: Request,
    shared: ContextDep,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
) -> Response:
    """From the identity provider, with a code for a token."""
    said = sessions.unsealed(request.cookies.get(_BEGUN, ""), shared.settings, _OWNER)
    begun = oidc_login.LoginAttempt(**said) if said else None
    if begun is None or not begun.is_of(state) or not code:
        return form(request, shared, layout.PREFIX, "That sign-in has expired; try again.", 401)
    found = oidc_login.provider_of(shared.settings)
    try:
        token = await run_in_threadpool(found.credential, begun, code, _back(request, shared))
    except Forbidden as error:
        return form(request, shared, begun.next, error.detail, 403)
    return await _signed_in(request, shared, token, begun.next)


def _back(request: Request, shared: Context) -> str:
    """Where the browser comes back to, as it calls us."""
    scheme = "https" if _is_https(request, shared) else "http"
    return f"{scheme}://{request.headers.get('host', '')}{layout.PREFIX}/sign-in/back"


def _is_https(request: Request, shared: Context) -> bool:
    return sessions.is_https(request.headers, shared.settings)


@router.post("/sign-out")
async def sign_out(request: Request, shared: ContextDep, form: Form) -> Response:
    response = layout.go(f"{layout.PREFIX}/sign-in", "You are signed out.")
    sessions.end(response, _is_https(request, shared))
    return response


def inside(path: str) -> str:
    """That, where it is a page of the dashboard; else the first one."""
    ours = path == layout.PREFIX or path.startswith((f"{layout.PREFIX}/", f"{layout.PREFIX}?"))
    plain = path.isascii() and path.isprintable() and "\\" not in path and "//" not in path
    return path if ours and plain and "/../" not in path else layout.PREFIX
