"""Sign-in with a key or at an identity provider, and sign-out."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse

from api.context import Context, ContextDep
from api.dashboard.auth import oidc_login, sessions, viewer
from api.dashboard.auth.viewer import Form
from api.dashboard.rendering import layout, page_router
from api.dependencies import charge
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
    context: ContextDep,
    next: Annotated[str, Query(max_length=_MAX_NEXT)] = layout.PREFIX,
) -> Response:
    """Shows the form, or goes on if sign-in isn't needed."""
    try:
        await viewer.recognize_viewer(request, context)
    except MillraceError as error:
        if not isinstance(error, Unauthenticated):
            raise
        return form(request, context, next)
    return layout.redirect(inside(next))


def form(
    request: Request, context: Context, next: str, problem: str = "", status: int = 200
) -> Response:
    """Renders the form, with a token that a cookie repeats against CSRF."""
    id = sessions.new_id()
    token = sessions.form_token(id, context.settings)
    response = layout.render(
        request, "sign_in.html", viewer=None, status=status, token=token, next=inside(next),
        problem=problem, oidc=bool(context.settings.oidc_client_id),
    )  # fmt: skip
    sessions.set_cookie(response, _ATTEMPT, id, _ATTEMPT_S, _is_https(request, context))
    return response


@router.post("/sign-in")
async def sign_in_by_key(request: Request, context: ContextDep) -> Response:
    """Signs in with a key; wrong ones are rate-limited as at any other route."""
    viewer.refuse_other_sites(request)
    sent = await viewer.fields(request)
    attempt = request.cookies.get(_ATTEMPT, "")
    if not sessions.is_form_token(sent.get("token", ""), attempt, context.settings):
        raise Forbidden("this form has expired; go back, load the page, and try again")
    key, next = sent.get("key", "").strip(), sent.get("next", "")
    if not api_keys.is_key(key):
        problem = "That is not an API key: keys begin with mk_ and have 46 characters."
        return form(request, context, next, problem, 401)
    return await _signed_in(request, context, key, next)


async def _signed_in(request: Request, context: Context, credential: str, next: str) -> Response:
    headers = viewer.with_credential(request.scope["headers"], credential)
    try:
        caller = await context.authenticator.authenticate(headers)
    except Unauthenticated:
        problem = "This key is unknown, expired or revoked."
        return form(request, context, next, problem, 401)
    await charge(context, caller)
    response, https = layout.redirect(inside(next)), _is_https(request, context)
    sessions.set_session(response, sessions.begin(credential, caller), context.settings, https)
    sessions.set_cookie(response, _ATTEMPT, "", 0, https)
    return response


@router.get("/sign-in/oidc")
async def sign_in_by_oidc(
    request: Request,
    context: ContextDep,
    next: Annotated[str, Query(max_length=_MAX_NEXT)] = layout.PREFIX,
) -> Response:
    """Redirects to the identity provider."""
    if not context.settings.oidc_client_id:
        raise NotFound("no identity provider is configured: MILLRACE_OIDC_CLIENT_ID")
    attempt = oidc_login.begin(inside(next))
    provider = oidc_login.provider(context.settings)
    url = await run_in_threadpool(provider.sign_in_url, attempt, _back(request, context))
    response = RedirectResponse(url, 303, layout.HEADERS)
    sealed = sessions.sealed(asdict(attempt), context.settings, _OWNER)
    # Lax: the browser returns from another site.
    https = _is_https(request, context)
    sessions.set_cookie(response, _ATTEMPT, sealed, _ATTEMPT_S, https, "lax")
    return response


@router.get("/sign-in/back")
async def finish_oidc(
    request: Request,
    context: ContextDep,
    state: Annotated[str, Query(max_length=200)] = "",
    code: Annotated[str, Query(max_length=4000)] = "",
) -> Response:
    """Finishes the sign-in with the code that the identity provider sent."""
    fields = sessions.unsealed(request.cookies.get(_ATTEMPT, ""), context.settings, _OWNER)
    attempt = oidc_login.LoginAttempt(**fields) if fields else None
    if attempt is None or not attempt.matches(state) or not code:
        return form(request, context, layout.PREFIX, "That sign-in has expired; try again.", 401)
    provider = oidc_login.provider(context.settings)
    try:
        token = await run_in_threadpool(provider.credential, attempt, code, _back(request, context))
    except Forbidden as error:
        return form(request, context, attempt.next, error.detail, 403)
    return await _signed_in(request, context, token, attempt.next)


def _back(request: Request, context: Context) -> str:
    """Returns the URL to return to, under the host that the browser uses."""
    scheme = "https" if _is_https(request, context) else "http"
    return f"{scheme}://{request.headers.get('host', '')}{layout.PREFIX}/sign-in/back"


def _is_https(request: Request, context: Context) -> bool:
    return sessions.is_https(request.headers, context.settings)


@router.post("/sign-out")
async def sign_out(request: Request, context: ContextDep, form: Form) -> Response:
    """Ends the session, here and in the browser."""
    await sessions.end(request.cookies, context)
    response = layout.redirect(f"{layout.PREFIX}/sign-in", "You are signed out.")
    sessions.clear_session(response, _is_https(request, context))
    return response


def inside(path: str) -> str:
    """Returns the path if it is a page of the dashboard, else the overview."""
    ours = path == layout.PREFIX or path.startswith((f"{layout.PREFIX}/", f"{layout.PREFIX}?"))
    plain = path.isascii() and path.isprintable() and "\\" not in path and "//" not in path
    return path if ours and plain and "/../" not in path else layout.PREFIX
