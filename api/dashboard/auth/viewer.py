"""Who looks at a page, and what it may show them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from api.auth.authenticator import Headers
from api.context import Context, ContextDep
from api.dashboard.auth import sessions
from api.dependencies import require
from jobs.errors import Forbidden, Malformed, Unauthenticated
from jobs.identity import OPEN, Caller, Scope

_CREDENTIALS = (b"authorization", b"x-api-key")
_EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True)
class Viewer:
    """token: what their forms must carry; open: nobody needs to sign in."""

    caller: Caller
    token: str = field(repr=False)
    open: bool = False

    def may(self, scope: Scope) -> bool:
        return self.caller.may(scope)

    @property
    def view(self) -> tuple[object, ...]:
        """Whoever has the same sees the same."""
        return self.caller.tenant, self.caller.actor, self.caller.scopes


async def recognize_viewer(request: Request, shared: Context) -> Viewer:
    """By the session's cookie, by what programs send, or as everybody. Raises Unauthenticated,
    and what `Authenticator.recognize` raises."""
    session = sessions.of(request.cookies, shared.settings)
    headers = request.scope["headers"]
    if session:
        headers = with_credential(headers, session.credential)
    caller = await shared.authenticator.authenticate(headers)
    id = session.id if session else caller.actor
    if is_open := caller.actor == OPEN.actor:
        id = _EVERYBODY
    elif session and not sessions.is_of(session, caller):
        raise Unauthenticated("the rights of this credential have changed; sign in again")
    viewer = Viewer(caller, sessions.form_token(id, shared.settings), is_open)
    request.state.viewer = viewer
    return viewer


def with_credential(headers: Headers, credential: str) -> Headers:
    """As a program would send it."""
    others = [pair for pair in headers if pair[0] not in _CREDENTIALS]
    return [*others, (b"authorization", f"Bearer {credential}".encode())]


async def _recognized(request: Request, shared: ContextDep) -> Viewer:
    return await recognize_viewer(request, shared)


Somebody = Annotated[Viewer, Depends(_recognized)]


def _may(scope: Scope) -> Callable[..., Awaitable[Viewer]]:
    async def check(viewer: Somebody) -> Viewer:
        require(viewer.caller, scope)
        return viewer

    return check


Viewing = Annotated[Viewer, Depends(_may("read"))]
Submitting = Annotated[Viewer, Depends(_may("submit"))]
Operating = Annotated[Viewer, Depends(_may("operate"))]
Administering = Annotated[Viewer, Depends(_may("admin"))]


async def _form(request: Request, viewer: Somebody) -> Mapping[str, str]:
    refuse_other_sites(request)
    form = await fields(request)
    if not sessions.same_token(form.get("token", ""), viewer.token):
        raise Forbidden("this form is of another session; go back, load the page, and try again")
    return form


Form = Annotated[Mapping[str, str], Depends(_form)]
"""What a page's own form sent: every POST takes it. Raises Forbidden where it may be another's."""


async def fields(request: Request) -> dict[str, str]:
    """A form's texts; of a name that comes twice, the last. Raises Malformed."""
    form = await request.form()
    found = {name: value for name, value in form.items() if isinstance(value, str)}
    try:
        "".join(found.values()).encode()
    except UnicodeEncodeError:  # a form may name its own charset
        raise Malformed("the form has characters that are none") from None
    return found


def refuse_other_sites(request: Request) -> None:
    """Raises Forbidden where the browser doesn't say that a page of ours sent this."""
    site = request.headers.get("sec-fetch-site")
    if site is None:  # not told over plain http from elsewhere
        origin = request.headers.get("origin", "").partition("://")[2]
        ours = bool(origin) and origin == request.headers.get("host")
    else:
        ours = site == "same-origin"
    if not ours:
        raise Forbidden("this form was not sent by a page of the dashboard")
