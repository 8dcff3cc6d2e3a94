"""An Authenticator on a real database, and who is recognized by a key."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from api.auth.authenticator import Authenticator
from jobs.errors import Unauthenticated
from jobs.identity import Caller
from jobs.settings import Settings
from tests.support.wait import eventually_async


def headers(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]


async def who(credentials: Authenticator, key: str) -> Caller | None:
    try:
        return await credentials.authenticate(headers(key))
    except Unauthenticated:
        return None


async def becomes(
    credentials: Authenticator, key: str, wanted: Callable[[Caller | None], object]
) -> None:
    async def is_so() -> bool:
        return bool(wanted(await who(credentials, key)))

    await eventually_async(is_so)


async def is_refused(credentials: Authenticator, key: str) -> None:
    await becomes(credentials, key, lambda caller: caller is None)


@asynccontextmanager
async def authenticating(
    settings: Settings, listening: bool = True
) -> AsyncIterator[Authenticator]:
    """An Authenticator that listens for changes, if it is to."""
    credentials = Authenticator(settings)
    heard = asyncio.Event()
    forget = credentials.forget

    def hear(tenant: str) -> None:
        forget(tenant)
        heard.set()

    credentials.forget = hear  # type: ignore[method-assign]
    try:
        if listening:
            credentials.start()
            await heard.wait()
        yield credentials
    finally:
        await credentials.stop()
