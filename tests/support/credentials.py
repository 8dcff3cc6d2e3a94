"""An Authenticator on a real database, and who is recognized by a key."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from api.auth.authenticator import Authenticator
from jobs.errors import Unauthenticated
from jobs.identity import Caller
from jobs.settings import Settings
from tests.support.wait import eventually_async

Test = Callable[[Authenticator], Coroutine[Any, Any, None]]


def headers(key: str) -> list[tuple[bytes, bytes]]:
    return [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())]


async def who(credentials: Authenticator, key: str) -> Caller | None:
    try:
        return await credentials.authenticate(headers(key))
    except Unauthenticated:
        return None


async def becomes(
    credentials: Authenticator, key: str, wanted: Callable[[Caller | None], object], within_s: float
) -> None:
    async def is_so() -> bool:
        return bool(wanted(await who(credentials, key)))

    await eventually_async(is_so, within_s)


def on(settings: Settings, test: Test, listening: bool = True) -> None:
    async def run() -> None:
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
                await asyncio.wait_for(heard.wait(), 10)
            await asyncio.wait_for(test(credentials), 30)
        finally:
            await credentials.stop()

    asyncio.run(run())
