"""Places that tenants take in turn."""

import asyncio
import threading

import pytest

from api.services.turns import TenantTurns
from jobs.errors import Overloaded

pytestmark = pytest.mark.anyio


async def hold(
    turns: TenantTurns, tenant: str, log: list[str], until: "asyncio.Future[None]"
) -> None:
    async with turns.place(tenant):
        log.append(tenant)
        await until


async def settle() -> None:
    """Lets every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


async def free(turns: TenantTurns) -> int:
    """Places that different tenants get at once."""
    log, end = list[str](), asyncio.get_running_loop().create_future()
    tasks = [asyncio.create_task(hold(turns, f"free-{n}", log, end)) for n in range(20)]
    await settle()
    found = len(log)
    end.set_result(None)
    await asyncio.gather(*tasks)
    return found


async def order(places: int, *tenants: str, each: int | None = None) -> tuple[list[str], list[str]]:
    """Who has a place at once, and who got one, in that order, once the first has ended."""
    turns, log = TenantTurns(places, each), list[str]()
    ends = [asyncio.get_running_loop().create_future() for _ in tenants]
    pairs = zip(tenants, ends, strict=True)
    tasks = [asyncio.create_task(hold(turns, tenant, log, end)) for tenant, end in pairs]
    await settle()
    at_once = list(log)
    for end in ends:
        end.set_result(None)
        await settle()
    await asyncio.gather(*tasks)
    assert await free(turns) == places
    return at_once, log


async def test_a_flood_of_one_tenant_delays_another_by_one_turn() -> None:
    at_once, all_of_them = await order(1, *["flood"] * 5, "other", "other")
    assert at_once == ["flood"]
    assert all_of_them[:4] == ["flood", "flood", "other", "flood"]
    assert all_of_them.count("flood") == 5
    at_once, all_of_them = await order(4, *["flood"] * 6, "other", each=2)
    assert at_once == ["flood", "flood", "other"], "one tenant holds no more than its part"
    assert len(all_of_them) == 7


async def test_a_place_is_given_back_by_who_leaves_while_it_waits_or_as_it_comes() -> None:
    turns, log = TenantTurns(1), list[str]()
    end = asyncio.get_running_loop().create_future()
    tasks = [asyncio.create_task(hold(turns, name, log, end)) for name in ("a", "b", "c")]
    await settle()
    tasks[1].cancel()
    end.set_result(None)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert log == ["a", "c"]
    assert await free(turns) == 1
    turns, log = TenantTurns(1), list[str]()
    end = asyncio.get_running_loop().create_future()
    tasks = [asyncio.create_task(hold(turns, name, log, end)) for name in ("a", "b")]
    await settle()
    end.set_result(None)
    await asyncio.sleep(0)  # the first ends, and the second has not run yet
    tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert log == ["a"]
    assert await free(turns) == 1


async def test_no_more_than_so_many_of_a_tenant_wait() -> None:
    turns, log = TenantTurns(1, most_waiting=2), list[str]()
    end = asyncio.get_running_loop().create_future()
    names = ["a", "a", "a", "b"]
    tasks = [asyncio.create_task(hold(turns, name, log, end)) for name in names]
    await settle()
    with pytest.raises(Overloaded) as caught:
        await hold(turns, "a", log, end)
    assert caught.value.retry_after_s
    end.set_result(None)
    await asyncio.gather(*tasks)
    assert sorted(log) == sorted(names)


class Source:
    """Generator whose thread and whose closing are seen."""

    def __init__(self) -> None:
        self.left, self.ran_on, self.closed = [0, 1, 2], set[int](), False

    def __next__(self) -> int:
        self.ran_on.add(threading.get_ident())
        if not self.left:
            raise StopIteration
        return self.left.pop(0)

    def close(self) -> None:
        self.closed = True


async def test_a_stream_holds_a_place_for_each_piece_alone_and_is_closed_if_broken_off() -> None:
    turns, source, found = TenantTurns(1), Source(), []
    async for piece in turns.pieces("a", source):  # type: ignore[arg-type]
        assert await free(turns) == 1
        found.append(piece)
    assert found == [0, 1, 2]
    assert threading.get_ident() not in source.ran_on
    assert await free(turns) == 1
    source = Source()
    pieces = turns.pieces("a", source)  # type: ignore[arg-type]
    await anext(pieces)
    await pieces.aclose()
    assert source.closed
