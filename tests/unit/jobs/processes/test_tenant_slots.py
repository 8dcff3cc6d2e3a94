"""Slots that tenants share: who has room, and whose turn it is."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from jobs.processes.tenant_slots import TenantSlots, Turns


@pytest.mark.parametrize(("slots", "most"), [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_tenant_alone_has_half_of_the_slots(slots: int, most: int) -> None:
    found = TenantSlots(slots)
    for _ in range(most):
        assert found.has_room("a")
        found.take("a")
    assert found.full() == ["a"]
    assert found.has_room("b") == (slots > 1)
    found.give_back("a")
    assert found.full() == []
    assert found.used("a") == most - 1


class World:
    """Tasks that run until they are told to end."""

    def __init__(self, slots: int) -> None:
        self.turns = Turns(slots)
        self.running: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        """Starts tasks; the first letter of a name is the tenant."""
        for name in names:
            self._ends[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._run(name))
        await self._settle()

    async def end(self, name: str) -> None:
        self._ends[name].set()
        await self._settle()

    async def cancel(self, name: str) -> None:
        self.tasks[name].cancel()
        await self._settle()

    async def _run(self, name: str) -> None:
        async with self.turns.turn(name[0]):
            self.running.append(name)
            try:
                await self._ends[name].wait()
            finally:
                self.running.remove(name)

    async def _settle(self) -> None:
        for _ in range(10):  # rounds of the loop: nothing here waits for anything outside
            await asyncio.sleep(0)


def played(play: Callable[[World], Awaitable[None]], slots: int = 3) -> None:
    async def run() -> None:
        world = World(slots)
        await play(world)
        for task in world.tasks.values():
            task.cancel()
        await asyncio.gather(*world.tasks.values(), return_exceptions=True)

    asyncio.run(run())


def test_another_tenant_need_not_wait_for_the_one_that_came_first() -> None:
    async def play(world: World) -> None:
        await world.start("a1", "a2", "a3", "a4")
        assert world.running == ["a1", "a2"]
        await world.start("b1")
        assert world.running == ["a1", "a2", "b1"]

    played(play)


def test_tenants_that_wait_take_turns() -> None:
    async def play(world: World) -> None:
        await world.start("a1", "a2", "a3", "a4", "b1", "b2", "c1")
        assert world.running == ["a1", "a2", "b1"]
        await world.end("a1")
        assert world.running == ["a2", "b1", "c1"]
        await world.end("c1")
        assert len(world.running) == 2  # a free slot is left for a fourth tenant
        await world.end("b1")
        assert world.running == ["a2", "b2"]
        await world.end("b2")
        assert world.running == ["a2", "a3"]

    played(play)


def test_a_tenant_with_one_body_goes_before_another_of_the_flood_with_a_single_slot() -> None:
    async def play(world: World) -> None:
        await world.start("a1", "a2", "a3", "b1", "b2")
        order = []
        for _ in range(5):
            [name] = world.running
            order.append(name)
            await world.end(name)
        assert order == ["a1", "a2", "b1", "a3", "b2"]

    played(play, slots=1)


def test_who_gives_up_waiting_takes_no_slot() -> None:
    async def play(world: World) -> None:
        await world.start("a1", "a2", "b1")
        await world.cancel("a2")
        await world.end("a1")
        assert world.running == ["b1"]
        await world.cancel("b1")
        await world.start("c1")
        assert world.running == ["c1"]

    played(play, slots=1)
