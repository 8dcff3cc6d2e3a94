"""What is remembered of credentials: who is known never waits, and changes are looked at again."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from api.auth import cache
from api.auth.cache import CredentialCache, LookupResult
from jobs import clock
from jobs.errors import Unavailable
from jobs.identity import OPEN, Caller
from tests.support.wait import PATIENCE_S, eventually_async

pytestmark = pytest.mark.anyio


@dataclass
class Registrar:
    """Who a credential is, as the database would say; it may take its time, and count."""

    callers: dict[bytes, Caller] = field(default_factory=dict)
    asked: list[bytes] = field(default_factory=list)
    slow: threading.Event = field(default_factory=threading.Event)
    away: bool = False

    def __post_init__(self) -> None:
        self.slow.set()

    def find(self, credential: bytes) -> LookupResult:
        self.asked.append(credential)
        found = self.callers.get(credential)
        self.slow.wait(PATIENCE_S)
        if self.away:
            raise Unavailable("away")
        return LookupResult(found)


ACME, BETA = (Caller(tenant, "tenant", OPEN.scopes, f"key_{tenant}") for tenant in ("acme", "beta"))
Passing = Callable[[float], None]


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> Passing:
    """Lets time pass."""
    now_s = [1000.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now_s[0])

    def passes(seconds: float) -> None:
        now_s[0] += seconds

    return passes


@pytest.fixture
def registrar() -> Registrar:
    return Registrar({b"a": ACME, b"b": BETA})


@pytest.fixture
def found(registrar: Registrar) -> Iterator[CredentialCache]:
    made = CredentialCache(registrar.find)
    yield made
    registrar.slow.set()
    made.stop()


async def settled(found: CredentialCache) -> None:
    await eventually_async(lambda: not found.lookups_in_flight)


async def test_all_who_ask_at_once_wait_for_one_look(
    registrar: Registrar, found: CredentialCache
) -> None:
    answers = await asyncio.gather(*(found.get(b"a", b"a") for _ in range(20)))
    assert answers == [ACME] * 20
    assert registrar.asked == [b"a"]


async def test_who_is_known_is_looked_up_beside_the_requests(
    registrar: Registrar, found: CredentialCache, passing: Passing
) -> None:
    assert await found.get(b"a", b"a") == ACME
    passing(cache.SOFT_TTL_S + 0.1)
    registrar.slow.clear()
    for _ in range(5):
        assert await found.get(b"a", b"a") == ACME
    registrar.slow.set()
    await settled(found)
    assert registrar.asked == [b"a"] * 2


async def test_who_was_not_asked_for_lately_is_looked_up_first(
    registrar: Registrar, found: CredentialCache, passing: Passing
) -> None:
    assert await found.get(b"a", b"a") == ACME
    passing(cache.HARD_TTL_S + 0.1)
    del registrar.callers[b"a"]
    assert await found.get(b"a", b"a") is None


async def test_a_look_that_takes_long_delays_who_is_known_once(
    registrar: Registrar, found: CredentialCache, passing: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_LOOKUP_WAIT_S", 0.01)
    assert await found.get(b"a", b"a") == ACME
    passing(cache.HARD_TTL_S + 0.1)
    registrar.slow.clear()
    del registrar.callers[b"a"]
    assert await found.get(b"a", b"a") == ACME
    monkeypatch.setattr(cache, "_LOOKUP_WAIT_S", 60)
    assert await found.get(b"a", b"a") == ACME
    registrar.slow.set()
    await settled(found)
    assert await found.get(b"a", b"a") is None


async def test_a_change_is_seen_though_a_look_was_under_way(
    registrar: Registrar, found: CredentialCache
) -> None:
    registrar.slow.clear()
    looking = asyncio.create_task(found.get(b"a", b"a"))
    await eventually_async(lambda: registrar.asked)
    del registrar.callers[b"a"]
    found.forget("acme")
    registrar.slow.set()
    assert await looking is None


async def test_a_change_is_about_its_tenant_alone(
    registrar: Registrar, found: CredentialCache
) -> None:
    for name in (b"a", b"b"):
        await found.get(name, name)
    found.forget("acme")
    for name in (b"a", b"b"):
        await found.get(name, name)
    assert registrar.asked == [b"a", b"b", b"a"]
    found.forget("")
    for name in (b"a", b"b"):
        await found.get(name, name)
    assert registrar.asked == [b"a", b"b", b"a", b"a", b"b"]


async def test_nobodies_are_remembered_too_but_not_for_long_and_not_all(
    registrar: Registrar, found: CredentialCache, passing: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MAX_UNKNOWN", 3)
    assert await found.get(b"a", b"a") == ACME
    for _ in range(2):
        for name in (b"x", b"y", b"z"):
            assert await found.get(name, name) is None
    assert len(registrar.asked) == 4
    for n in range(10):
        assert await found.get(b"%d" % n, b"%d" % n) is None
    for name in (b"7", b"8", b"9", b"0"):
        assert await found.get(name, name) is None
    assert registrar.asked[-2:] == [b"9", b"0"]  # it knows the last three
    await found.get(b"a", b"a")
    assert registrar.asked.count(b"a") == 1
    registrar.callers[b"9"] = BETA
    assert await found.get(b"9", b"9") is None
    passing(cache.HARD_TTL_S + 0.1)
    assert await found.get(b"9", b"9") == BETA


async def test_who_was_used_last_is_kept(
    registrar: Registrar, found: CredentialCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MAX_CALLERS", 2)
    registrar.callers[b"c"] = BETA
    for name in (b"a", b"b", b"a", b"c", b"a"):
        await found.get(name, name)
    assert registrar.asked == [b"a", b"b", b"c"]
    await found.get(b"b", b"b")
    assert registrar.asked[3:] == [b"b"]


async def test_strangers_by_the_thousand_are_turned_away_and_delay_nobody_who_is_known(
    registrar: Registrar, found: CredentialCache, passing: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_MAX_LOOKUPS", 10)
    assert await found.get(b"a", b"a") == ACME
    registrar.slow.clear()
    waiting = [asyncio.create_task(found.get(b"%d" % n, b"%d" % n)) for n in range(10)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="too many"):
        await found.get(b"b", b"b")
    passing(cache.SOFT_TTL_S + 0.1)
    assert await found.get(b"a", b"a") == ACME
    # Strangers keep no thread from it.
    await eventually_async(lambda: registrar.asked.count(b"a") >= 2)
    registrar.slow.set()
    assert await asyncio.gather(*waiting) == [None] * 10


async def test_what_cant_be_told_is_said_to_strangers_and_tried_again(
    registrar: Registrar, found: CredentialCache, passing: Passing
) -> None:
    registrar.away = True
    with pytest.raises(Unavailable):
        await found.get(b"a", b"a")
    registrar.away = False
    assert await found.get(b"a", b"a") == ACME
    registrar.away = True
    passing(cache.HARD_TTL_S + 0.1)
    for _ in range(5):
        assert await found.get(b"a", b"a") == ACME
    assert len(registrar.asked) == 3


def test_a_slow_identity_provider_delays_no_key(passing: Passing) -> None:
    answering = threading.Event()

    def find(credential: bytes) -> LookupResult:
        if credential.startswith(b"token"):
            answering.wait(PATIENCE_S)
        return LookupResult(ACME)

    async def run() -> None:
        found = CredentialCache(find, is_slow=lambda credential: credential.startswith(b"token"))
        try:
            assert await found.get(b"key", b"key") == ACME
            tokens = [asyncio.create_task(found.get(b"%d" % n, b"token%d" % n)) for n in range(4)]
            await asyncio.sleep(0)
            passing(cache.HARD_TTL_S + 1)  # the key is looked up before it counts
            for name in (b"key", b"another"):
                assert await asyncio.wait_for(found.get(name, name), 5) == ACME
            answering.set()
            assert await asyncio.gather(*tokens) == [ACME] * 4
        finally:
            answering.set()
            found.stop()

    asyncio.run(run())
