"""Dependencies that authenticate a request and require a scope."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from api.context import Context, ContextDep
from jobs.calls.quotas import requests_of
from jobs.errors import Forbidden, MillraceError
from jobs.identity import Caller, Scope
from jobs.store.db import CONNECTION_ERRORS

_BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="bearer",
    description="an API key (`mk_…`), or a token of the configured identity provider",
)


async def authorize(request: Request, context: Context, scope: Scope) -> Caller:
    """Authenticates a request, charges it to its tenant's requests a second, and requires a scope.

    Raises Unauthenticated, QuotaExceeded, Forbidden.
    """
    caller = await context.authenticator.authenticate(request.scope["headers"])
    if caller.limits:
        await charge(context, caller)
    require(caller, scope)
    return caller


async def charge(context: Context, caller: Caller) -> None:
    """Charges a request to its tenant's requests a second. Raises QuotaExceeded."""
    await context.gateway.charge(requests_of(caller.tenant, caller.limits))


def require(caller: Caller, scope: Scope) -> None:
    """Raises Forbidden where the caller's credential lacks the scope."""
    if scope not in caller.scopes:
        raise Forbidden(f"this credential lacks the scope {scope}")


def reads_on(request: Request, context: Context, tenant: str) -> Callable[[], Awaitable[bool]]:
    """Returns a check for streams: True while the request's credential may read this tenant's data.

    It looks the credential up in the cache, and charges nothing.
    """

    async def check() -> bool:
        try:
            caller = await context.authenticator.authenticate(request.scope["headers"])
        except (MillraceError, *CONNECTION_ERRORS):  # whoever asks again is told why
            return False
        return caller.may("read") and (tenant == caller.tenant or caller.may("operate"))

    return check


def _may(scope: Scope) -> Callable[..., Awaitable[Caller]]:
    async def check(
        request: Request, context: ContextDep, _: Annotated[object, Depends(_BEARER)]
    ) -> Caller:
        return await authorize(request, context, scope)

    return check


def _may_in_turn(scope: Scope) -> Callable[..., AsyncIterator[Caller]]:
    """Holds one of the tenant's places while the route runs; its response may take longer."""

    async def check(
        request: Request, context: ContextDep, _: Annotated[object, Depends(_BEARER)]
    ) -> AsyncIterator[Caller]:
        caller = await authorize(request, context, scope)
        async with context.turns.place(caller.tenant):
            yield caller

    return check


Reader = Annotated[Caller, Depends(_may_in_turn("read"), scope="function")]
Submitter = Annotated[Caller, Depends(_may_in_turn("submit"), scope="function")]
Operator = Annotated[Caller, Depends(_may_in_turn("operate"), scope="function")]
Admin = Annotated[Caller, Depends(_may_in_turn("admin"), scope="function")]
#: Callers of routes that read a body, or wait for a call: they take no place meanwhile.
Uploader = Annotated[Caller, Depends(_may("submit"))]
Inferrer = Annotated[Caller, Depends(_may("infer"))]
