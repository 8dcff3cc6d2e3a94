"""Streams of live pages: looked for once for all who see the same, bounded, and ended."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from starlette.requests import Request

from api.dashboard.rendering import live_updates
from api.dashboard.rendering.live_updates import LiveUpdates, Parts, _Watch
from jobs.errors import NotFound, Overloaded
from tests.support.wait import eventually_async

pytestmark = pytest.mark.anyio


async def page(_: Request) -> Parts:
    return Parts({"live_x": "there"})


def watch(handle: Callable[[Request], Awaitable[Parts]], tenant: str = "acme") -> _Watch:
    request = Request({"type": "http", "method": "GET", "path": "/dashboard", "headers": []})
    return _Watch(request, handle, tenant, {})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_updates, "EVERY_S", 0.01)


async def test_one_looks_for_all_who_see_the_same() -> None:
    looks, before = 0, asyncio.all_tasks()

    async def counted(_: Request) -> Parts:
        nonlocal looks
        looks += 1
        return Parts({"live_x": str(looks)})

    lives = LiveUpdates()
    watches = [watch(counted) for _ in range(20)]
    for each in watches:
        lives.begin("same", each)
    for each in watches:
        await each.wait()
    assert looks < 20
    assert all(each.parts for each in watches)
    for each in watches:
        lives.end("same", each)
    # Nobody is looked for any more.
    await eventually_async(lambda: asyncio.all_tasks() <= before)
    await lives.stop()


async def test_a_page_that_fails_for_one_goes_on_for_the_others() -> None:
    async def gone(_: Request) -> Parts:
        raise NotFound("deleted")

    lives = LiveUpdates()
    first, second = watch(gone), watch(page)
    lives.begin("same", first)
    lives.begin("same", second)
    await first.wait()
    await second.wait()
    assert (first.parts, second.parts) in [
        (None, {"live_x": "there"}),
        ({"live_x": "there"}, {"live_x": "there"}),  # the other one looked first
    ]
    await lives.stop()


async def test_so_many_streams_and_no_more_nor_all_of_them_for_one_tenant() -> None:
    lives = LiveUpdates()
    watches = [watch(page, f"tenant-{n}") for n in range(live_updates.MOST_STREAMS)]
    for n, each in enumerate(watches):
        lives.begin(n, each)
    with pytest.raises(Overloaded):
        lives.begin("more", watch(page))
    lives.end(0, watches[0])
    lives.begin("more", watch(page))
    await lives.stop()
    lives = LiveUpdates()
    for n in range(live_updates.MOST_OF_A_TENANT):
        lives.begin(n % 2, watch(page, "mallory"))
    with pytest.raises(Overloaded):
        lives.begin("another", watch(page, "mallory"))
    lives.begin("hers", watch(page, "acme"))
    await lives.stop()


async def test_a_process_that_stops_ends_them_all() -> None:
    lives = LiveUpdates()
    each = watch(page)
    lives.begin("same", each)
    lives.close()
    await each.wait()
    assert each.parts is None
    with pytest.raises(Overloaded):
        lives.begin("late", watch(page))
    await lives.stop()
