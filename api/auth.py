"""Who is asking: recognized by the credential alone, and let to what its scopes allow."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request

from jobs.identity import OPEN, Caller, Scope


async def caller_of(request: Request) -> Caller:
    """On loopback, as long as no key was made: everybody is `default`, with every right."""
    return OPEN


async def may(request: Request, scope: Scope) -> Caller:
    """Who is asking, where the credential has this scope."""
    return await caller_of(request)


def _may(scope: Scope) -> Callable[[Request], Awaitable[Caller]]:
    async def check(request: Request) -> Caller:
        return await may(request, scope)

    return check


Reader = Annotated[Caller, Depends(_may("read"))]
Submitter = Annotated[Caller, Depends(_may("submit"))]
Inferrer = Annotated[Caller, Depends(_may("infer"))]
Operator = Annotated[Caller, Depends(_may("operate"))]
Admin = Annotated[Caller, Depends(_may("admin"))]
