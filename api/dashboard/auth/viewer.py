"""Viewer of a page: credential, rights and form token."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from api.auth.audit import UPDATES
from api.auth.open_access import Headers
from api.context import Context, ContextDep
from api.dashboard.auth import sessions
from api.dependencies import charge
from jobs.errors import Forbidden, Malformed, Unauthenticated
from jobs.identity import OPEN, Caller, Scope

_CREDENTIALS = (b"authorization", b"x-api-key")
_EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Viewer of a page."""

    caller: Caller
    session: str = field(repr=False)  #: id of the session, or name of who has none
    token: str = field(repr=False)  #: CSRF token of the session's forms
    open: bool = False  #: authentication is off

    def may(self, scope: Scope) -> bool:
        """Returns True if the viewer has the scope."""
        return self.caller.may(scope)

    @property
    def view(self) -> tuple[object, ...]:
        """Key of what the viewer sees: equal for viewers who see the same."""
        return self.caller.tenant, self.caller.actor, self.caller.scopes


async def recognize_viewer(request: Request, context: Context) -> Viewer:
    """Identifies the viewer by session cookie or by a request's credential. Raises Unauthenticated,
    and what `Authenticator.authenticate` raises."""
    session = sessions.from_cookies(request.cookies, context.settings)
    headers = request.scope["headers"]
    if session:
        if await sessions.has_ended(session, context):
            raise Unauthenticated("this session was signed out of; sign in again")
        headers = with_credential(headers, session.credential)
    caller = await context.authenticator.authenticate(headers)
    id = session.id if session else caller.actor
    if is_open := caller.actor == OPEN.actor:
        id = _EVERYBODY
    elif session and not sessions.matches(session, caller):
        raise Unauthenticated("the rights of this credential have changed; sign in again")
    viewer = Viewer(caller, id, sessions.form_token(id, context.settings), is_open)
    request.state.viewer = viewer
    return viewer


def with_credential(headers: Headers, credential: str) -> Headers:
    """Returns headers with this credential."""
    others = [pair for pair in headers if pair[0] not in _CREDENTIALS]
    return [*others, (b"authorization", f"Bearer {credential}".encode())]


async def _viewer(request: Request, context: ContextDep) -> Viewer:
    viewer = await recognize_viewer(request, context)
    if not getattr(request.state, UPDATES, False):
        await charge(context, viewer.caller)
    return viewer


Somebody = Annotated[Viewer, Depends(_viewer)]


async def _form(request: Request, context: ContextDep, viewer: Somebody) -> Mapping[str, str]:
    refuse_other_sites(request)
    form = await fields(request)
    check_token(form, viewer, context)
    return form


Form = Annotated[Mapping[str, str], Depends(_form)]
"""Fields of a form; required by every POST. Raises Forbidden where the CSRF check fails."""


def check_token(form: Mapping[str, str], viewer: Viewer, context: Context) -> None:
    """Raises Forbidden unless a form has the CSRF token of the viewer's session."""
    if not sessions.is_form_token(form.get("token", ""), viewer.session, context.settings):
        raise Forbidden(
            "this form belongs to another session; go back, reload the page, and try again"
        )


async def fields(request: Request) -> dict[str, str]:
    """Returns a form's text fields; the last of each name. Raises Malformed."""
    form = await request.form()
    texts = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        "".join(texts.values()).encode()
    except UnicodeEncodeError:  # a form may name its own charset
        raise Malformed("the form contains invalid characters") from None
    return texts


def refuse_other_sites(request: Request) -> None:
    """Raises Forbidden unless the browser says that one of our pages sent the request."""
    site = request.headers.get("sec-fetch-site")
    if site is None:  # not sent over plain http from other hosts
        origin = request.headers.get("origin", "").partition("://")[2]
        ours = bool(origin) and origin == request.headers.get("host")
    else:
        ours = site == "same-origin"
    if not ours:
        raise Forbidden("this form was not sent by a page of the dashboard")
