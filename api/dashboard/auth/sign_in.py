"""Sign-in with a key or at an identity provider, and sign-out."""

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

_ATTEMPT = "millrace_sign_in"
_OWNER = "dashboard sign-in"
_ATTEMPT_S = 600.0
_MAX_NEXT = 2000


@router.get("/sign-in")
async def sign_in(
    request: Request,
    shared: ContextDep,
    next: Annotated[str, Query(max_length=_MAX_NEXT)] = layout.PREFIX,
) -> Response:
    """Shows the form, or goes on if sign-in isn't needed."""
    try:
        await viewer.recognize_viewer(request, shared)
    except MillraceError as error:
        if not isinstance(error, Unauthenticated):
            raise
        return form(request, shared, next)
    return layout.redirect(inside(next))


def form(
    request: Request, shared: Context, next: str, problem: str = "", status: int = 200
) -> Response:
    """Renders the form, with a token that a cookie repeats against CSRF."""
    id = sessions.new_id()
    token = sessions.form_token(id, shared.settings)
    response = layout.page(
        request, "sign_in.html", viewer=None, status=status, token=token, next=inside(next),
        problem=problem, oidc=bool(shared.settings.oidc_client_id),
    )  # fmt: skip
    sessions.set_cookie(response, _ATTEMPT, id, _ATTEMPT_S, _is_https(request, shared))
    return response


@router.post("/sign-in")
async def sign_in_by_key(request: Request, shared: ContextDep) -> Response:
    """Signs in with a key; wrong ones are rate-limited as at any other route."""
    viewer.refuse_other_sites(request)
    sent = await viewer.fields(request)
    expected = sessions.form_token(request.cookies.get(_ATTEMPT, ""), shared.settings)
    if not sessions.same_token(sent.get("token", ""), expected):
        raise Forbidden("this form has expired; go back, load the page, and try again")
    key, next = sent.get("key", "").strip(), sent.get("next", "")
    if not api_keys.is_key(key):
        problem = "That is not an API key: keys begin with mk_ and have 46 characters."
        return form(request, shared, next, problem, 401)
    return await _signed_in(request, shared, key, next)


async def _signed_in(request: Request, shared: Context, credential: str, next: str) -> Response:
    headers = viewer.with_credential(request.scope["headers"], credential)
    try:
        caller = await shared.authenticator.authenticate(headers)
    except Unauthenticated:
        problem = "This key is unknown, expired or revoked."
        return form(request, shared, next, problem, 401)
    response, https = layout.redirect(inside(next)), _is_https(request, shared)
    sessions.set_session(response, sessions.begin(credential, caller), shared.settings, https)
    sessions.set_cookie(response, _ATTEMPT, "", 0, https)
    return response


@router.get("/sign-in/oidc")
async def sign_in_by_oidc(
    request: Request,
    shared: ContextDep,
    next: Annotated[str, Query(max_length=_MAX_NEXT)] = layout.PREFIX,
) -> Response:
    """Redirects to the identity provider."""
    if not shared.settings.oidc_client_id:
        raise NotFound("no identity provider is configured: MILLRACE_OIDC_CLIENT_ID")
    attempt = oidc_login.begin(inside(next))
    provider = oidc_login.provider(shared.settings)
    url = await run_in_threadpool(provider.sign_in_url, attempt, _back(request, shared))
    response = RedirectResponse(url, 303, layout.HEADERS)
    sealed = sessions.sealed(asdict(attempt), shared.settings, _OWNER)
    # Lax: the browser returns from another site.
    https = _is_https(request, shared)
    sessions.set_cookie(response, _ATTEMPT, sealed, _ATTEMPT_S, https, "lax")
    return response


@router.get("/sign-in/back")
async def finish_oidc(
    request: Request,
    shared: ContextDep,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
) -> Response:
    """Finishes the sign-in with the code that the identity provider sent."""
    fields = sessions.unsealed(request.cookies.get(_ATTEMPT, ""), shared.settings, _OWNER)
    attempt = oidc_login.LoginAttempt(**fields) if fields else None
    if attempt is None or not attempt.matches(state) or not code:
        return form(request, shared, layout.PREFIX, "That sign-in has expired; try again.", 401)
    provider = oidc_login.provider(shared.settings)
    try:
        token = await run_in_threadpool(provider.credential, attempt, code, _back(request, shared))
    except Forbidden as error:
        return form(request, shared, attempt.next, error.detail, 403)
    return await _signed_in(request, shared, token, attempt.next)


def _back(request: Request, shared: Context) -> str:
    """Returns the URL to return to, under the host that the browser uses."""
    scheme = "https" if _is_https(request, shared) else "http"
    return f"{scheme}://{request.headers.get('host', '')}{layout.PREFIX}/sign-in/back"


def _is_https(request: Request, shared: Context) -> bool:
    return sessions.is_https(request.headers, shared.settings)


@router.post("/sign-out")
async def sign_out(request: Request, shared: ContextDep, form: Form) -> Response:
    """Ends the session."""
    response = layout.redirect(f"{layout.PREFIX}/sign-in", "You are signed out.")
    sessions.clear_session(response, _is_https(request, shared))
    return response


def inside(path: str) -> str:
    """Returns the path if it is a page of the dashboard, else the overview."""
    ours = path == layout.PREFIX or path.startswith((f"{layout.PREFIX}/", f"{layout.PREFIX}?"))
    plain = path.isascii() and path.isprintable() and "\\" not in path and "//" not in path
    return path if ours and plain and "/../" not in path else layout.PREFIX
