"""What is remembered of credentials: who is known never waits, and changes are looked at again."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from api.auth import cache
from api.auth.cache import CredentialCache, LookupResult
from jobs.errors import Unavailable
from jobs.identity import OPEN, Caller
from tests.support.wait import PATIENCE_S, eventually_async
from tests.unit.api.conftest import Clock

pytestmark = pytest.mark.anyio

ACME, BETA = (Caller(tenant, "tenant", OPEN.scopes, f"key_{tenant}") for tenant in ("acme", "beta"))


class Registrar:
    """Who a credential is, as the database would say, and a cache that asks it; it may take its
    time, and counts."""

    def __init__(self) -> None:
        self.callers = {b"a": ACME, b"b": BETA}
        self.asked: list[bytes] = []
        self.slow = threading.Event()
        self.slow.set()
        self.away = False
        self.cache = CredentialCache(self.find)

    def find(self, credential: bytes) -> LookupResult:
        self.asked.append(credential)
        found = self.callers.get(credential)
        self.slow.wait(PATIENCE_S)
        if self.away:
            raise Unavailable("away")
        return LookupResult(found)

    async def get(self, *names: bytes) -> list[Caller | None]:
        """Callers that the cache says, one after another."""
        return [await self.cache.get(name, name) for name in names]

    async def settled(self) -> None:
        self.slow.set()
        await eventually_async(lambda: not self.cache.lookups_in_flight)


@pytest.fixture
def registrar(time: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registrar]:
    """Its cache is as old as a test says, and waits for a thread that gets no time."""
    monkeypatch.setattr(cache, "_LOOKUP_WAIT_S", PATIENCE_S)
    made = Registrar()
    yield made
    made.slow.set()
    made.cache.stop()


async def test_all_who_ask_at_once_wait_for_one_look(registrar: Registrar) -> None:
    answers = await asyncio.gather(*(registrar.get(b"a") for _ in range(20)))
    assert answers == [[ACME]] * 20
    assert registrar.asked == [b"a"]


async def test_the_known_are_looked_up_beside_requests_or_first_if_old(
    registrar: Registrar, time: Clock
) -> None:
    assert await registrar.get(b"a") == [ACME]
    time.now_s += cache.SOFT_TTL_S + 0.1
    registrar.slow.clear()
    assert await registrar.get(*[b"a"] * 5) == [ACME] * 5
    await registrar.settled()
    assert registrar.asked == [b"a"] * 2
    time.now_s += cache.HARD_TTL_S + 0.1
    del registrar.callers[b"a"]
    assert await registrar.get(b"a") == [None]


async def test_a_look_that_takes_long_delays_who_is_known_once(
    registrar: Registrar, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_LOOKUP_WAIT_S", 0.01)
    assert await registrar.get(b"a") == [ACME]
    time.now_s += cache.HARD_TTL_S + 0.1
    registrar.slow.clear()
    del registrar.callers[b"a"]
    assert await registrar.get(b"a") == [ACME]
    monkeypatch.setattr(cache, "_LOOKUP_WAIT_S", PATIENCE_S)
    assert await registrar.get(b"a") == [ACME]
    await registrar.settled()
    assert await registrar.get(b"a") == [None]


async def test_a_change_is_seen_though_a_look_was_under_way(registrar: Registrar) -> None:
    registrar.slow.clear()
    looking = asyncio.create_task(registrar.get(b"a"))
    await eventually_async(lambda: registrar.asked)
    del registrar.callers[b"a"]
    registrar.cache.forget("acme")
    registrar.slow.set()
    assert await looking == [None]


async def test_a_change_is_about_its_tenant_alone(registrar: Registrar) -> None:
    for tenant, asked in (("acme", [b"a", b"b"]), ("", [b"a"]), ("nobody", [b"a", b"b"])):
        registrar.asked.clear()
        await registrar.get(b"a", b"b")
        assert registrar.asked == asked
        registrar.cache.forget(tenant)


async def test_nobodies_are_remembered_too_but_not_for_long_and_not_all(
    registrar: Registrar, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MAX_UNKNOWN", 3)
    assert await registrar.get(b"a") == [ACME]
    assert await registrar.get(*[b"x", b"y", b"z"] * 2) == [None] * 6
    assert len(registrar.asked) == 4
    assert await registrar.get(*[b"%d" % n for n in range(10)]) == [None] * 10
    assert await registrar.get(b"7", b"8", b"9", b"0") == [None] * 4
    assert registrar.asked[-2:] == [b"9", b"0"]  # it knows the last three
    await registrar.get(b"a")
    assert registrar.asked.count(b"a") == 1
    registrar.callers[b"9"] = BETA
    assert await registrar.get(b"9") == [None]
    time.now_s += cache.HARD_TTL_S + 0.1
    assert await registrar.get(b"9") == [BETA]


async def test_the_last_used_stay(registrar: Registrar, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_MAX_CALLERS", 2)
    registrar.callers[b"c"] = BETA
    await registrar.get(b"a", b"b", b"a", b"c", b"a")
    assert registrar.asked == [b"a", b"b", b"c"]
    await registrar.get(b"b")
    assert registrar.asked[3:] == [b"b"]


async def test_strangers_by_the_thousand_are_turned_away_and_delay_nobody_who_is_known(
    registrar: Registrar, time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MAX_LOOKUPS", 10)
    assert await registrar.get(b"a") == [ACME]
    registrar.slow.clear()
    waiting = [asyncio.create_task(registrar.get(b"%d" % n)) for n in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many"):
        await registrar.get(b"b")
    time.now_s += cache.SOFT_TTL_S + 0.1
    assert await registrar.get(b"a") == [ACME]
    # Strangers keep no thread from it.
    await eventually_async(lambda: registrar.asked.count(b"a") >= 2)
    registrar.slow.set()
    assert await asyncio.gather(*waiting) == [[None]] * 10


async def test_what_cant_be_told_is_tried_again(registrar: Registrar, time: Clock) -> None:
    registrar.away = True
    with pytest.raises(Unavailable):
        await registrar.get(b"a")
    registrar.away = False
    assert await registrar.get(b"a") == [ACME]
    registrar.away = True
    time.now_s += cache.HARD_TTL_S + 0.1
    assert await registrar.get(*[b"a"] * 5) == [ACME] * 5
    assert len(registrar.asked) == 3


async def test_a_slow_identity_provider_delays_no_key(
    time: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_LOOKUP_WAIT_S", PATIENCE_S)
    answering = threading.Event()

    def is_slow(credential: bytes) -> bool:
        return credential.startswith(b"token")

    def find(credential: bytes) -> LookupResult:
        if is_slow(credential):
            answering.wait(PATIENCE_S)
        return LookupResult(ACME)

    found = CredentialCache(find, is_slow=is_slow)
    try:
        assert await found.get(b"key", b"key") == ACME
        tokens = [asyncio.create_task(found.get(b"%d" % n, b"token%d" % n)) for n in range(4)]
        await asyncio.sleep(0)
        time.now_s += cache.HARD_TTL_S + 1  # the key is looked up before it counts
        async with asyncio.timeout(PATIENCE_S / 2):
            assert [await found.get(name, name) for name in (b"key", b"another")] == [ACME] * 2
        answering.set()
        assert await asyncio.gather(*tokens) == [ACME] * 4
    finally:
        answering.set()
        found.stop()
