"""Dependencies that authenticate a request and require a scope."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from api.context import Context, ContextDep
from jobs.errors import Forbidden
from jobs.identity import Caller, Scope

_BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="bearer",
    description="an API key (`mk_…`), or a token of the configured identity provider",
)


async def authorize(request: Request, context: Context, scope: Scope) -> Caller:
    """Authenticates a request and requires a scope. Raises Unauthenticated, Forbidden."""
    caller = await context.authenticator.authenticate(request.scope["headers"])
    require(caller, scope)
    return caller


def require(caller: Caller, scope: Scope) -> None:
    """Raises Forbidden where the caller's credential lacks the scope."""
    if scope not in caller.scopes:
        raise Forbidden(f"this credential lacks the scope {scope}")


def _may(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    async def check(
        request: Request, context: ContextDep, _: Annotated[object, Depends(_BEARER)]
    ) -> Caller:
        return await authorize(request, context, scope)

    return check


Reader = Annotated[Caller, Depends(_may("read"))]
Submitter = Annotated[Caller, Depends(_may("submit"))]
Inferrer = Annotated[Caller, Depends(_may("infer"))]
Operator = Annotated[Caller, Depends(_may("operate"))]
Admin = Annotated[Caller, Depends(_may("admin"))]
