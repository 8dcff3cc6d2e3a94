"""Who is recognized by what, on a real database: at once where it changes."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, text

from api.auth.authenticator import Authenticator
from jobs import ids
from jobs.errors import Unauthenticated
from jobs.identity import OPEN, ROLES, Caller, Limit
from jobs.settings import Settings
from jobs.store import db
from jobs.store.tenants import api_keys, limits, tenants
from tests.support.credentials import becomes, headers, on, who
from tests.support.keys import make_key


@contextmanager
def away(database: Engine) -> Iterator[None]:
    """Whoever looks for a key gets no answer."""
    with database.begin() as tx:
        tx.execute(text("ALTER TABLE api_keys RENAME COLUMN hash TO gone"))
    yield


def test_a_key_stands_for_its_tenant_and_what_it_may(database: Engine, settings: Settings) -> None:
    key, id = make_key(database, role="operator", scopes=frozenset({"read", "operate"}))
    with database.begin() as tx:
        tenants.put(tx, "acme", weight=3.0, soft_cap=None, hard_cap=None)
        for of in ("", id, "key_another"):
            tx.execute(
                text("INSERT INTO limits (tenant_id, key_id, job_items) VALUES ('acme', :of, 7)"),
                {"of": of},
            )

    async def test(credentials: Authenticator) -> None:
        found = await credentials.authenticate([(b"x-api-key", key.encode())])
        limits = (Limit(job_items=7), Limit(key=id, job_items=7))
        scopes = frozenset({"read", "operate"})
        assert found == Caller("acme", "operator", scopes, id, 3.0, limits)
        assert await credentials.authenticate(headers(key)) is found

    on(settings, test)


def test_without_any_key_everybody_on_loopback_is_let_in_and_the_first_key_ends_it_at_once(
    database: Engine, settings: Settings
) -> None:
    async def test(credentials: Authenticator) -> None:
        assert await credentials.authenticate([]) == OPEN
        assert await who(credentials, "whatever") == OPEN
        key, _ = make_key(database)
        await becomes(credentials, "whatever", lambda caller: caller is None, 1)
        assert (found := await who(credentials, key))
        assert (found.tenant, found.scopes) == ("acme", ROLES["tenant"])
        with pytest.raises(Unauthenticated):
            await credentials.authenticate([])

    on(settings, test)


def test_a_rotated_key_is_held_to_the_limits_of_the_one_before(
    database: Engine, settings: Settings
) -> None:
    _, id = make_key(database)
    with database.begin() as tx:
        limits.put(tx, "acme", [Limit(key=id, job_items=7), Limit(job_items=9)])
        row, key = api_keys.rotate(tx, "acme", ids.parse("key", id), 0)

    async def test(credentials: Authenticator) -> None:
        assert (found := await who(credentials, key))
        mine = Limit(key=ids.show("key", row.id), job_items=7)
        assert set(found.limits) == {mine, Limit(job_items=9)}

    on(settings, test)


def test_without_any_key_no_other_site_asks_in_place_of_who_sits_here(
    database: Engine, settings: Settings
) -> None:
    ours = [b"127.0.0.1:8000", b"localhost", b"LOCALHOST:1", b"[::1]:8000", b"[::1]"]
    others = [b"rebound.example:8000", b"localhost.example", b"127.0.0.1.example", b"", b"[::2]:1"]
    foreign = [
        (b"origin", b"https://other.example"),
        (b"origin", b"null"),
        (b"sec-fetch-site", b"cross-site"),
    ]

    async def test(credentials: Authenticator) -> None:
        for host in ours:
            for page in (
                (b"origin", b"http://" + host),
                (b"sec-fetch-site", b"same-origin"),
                (b"sec-fetch-site", b"none"),
            ):
                assert await credentials.authenticate([(b"host", host), page]) == OPEN
            for page in foreign:
                with pytest.raises(Unauthenticated):
                    await credentials.authenticate([(b"host", host), page])
        for host in others:
            with pytest.raises(Unauthenticated):
                await credentials.authenticate([(b"host", host)])
        key, _ = make_key(database)
        await becomes(credentials, key, lambda caller: caller != OPEN, 1)
        keyed = [(b"host", others[0]), *foreign, (b"x-api-key", key.encode())]
        assert (found := await credentials.authenticate(keyed))
        assert found.tenant == "acme"

    on(settings, test)


def test_who_listens_elsewhere_lets_nobody_in_without_a_key(settings: Settings) -> None:
    async def test(credentials: Authenticator) -> None:
        with pytest.raises(Unauthenticated):
            await credentials.authenticate([])

    on(settings.evolve(host="0.0.0.0"), test)


@pytest.mark.parametrize("listening", [True, False])
def test_a_revoked_key_is_refused_at_once_or_without_word_of_it_within_seconds(
    database: Engine, settings: Settings, listening: bool
) -> None:
    key, id = make_key(database)

    async def test(credentials: Authenticator) -> None:
        assert await who(credentials, key)
        with database.begin() as tx:
            api_keys.revoke(tx, "*", ids.parse("key", id))
        await becomes(credentials, key, lambda caller: caller is None, 1 if listening else 4)

    on(settings, test, listening)


def test_a_key_ends_when_it_expires(database: Engine, settings: Settings) -> None:
    key, _ = make_key(database, ttl_s=0.6)

    async def test(credentials: Authenticator) -> None:
        assert await who(credentials, key)
        await becomes(credentials, key, lambda caller: caller is None, 2)

    on(settings, test)


def test_a_rotated_key_goes_on_as_long_as_it_was_said(database: Engine, settings: Settings) -> None:
    key, id = make_key(database, scopes=frozenset({"read"}))
    with database.begin() as tx:
        row, new = api_keys.rotate(tx, "*", ids.parse("key", id), overlap_s=1.0)
        old = api_keys.get(tx, "acme", ids.parse("key", id))
    assert (old.replaced_by, row.expires_at) == (row.id, None)

    async def test(credentials: Authenticator) -> None:
        first, second = await who(credentials, key), await who(credentials, new)
        assert first
        assert second
        assert (first.tenant, first.scopes) == (second.tenant, second.scopes)
        await becomes(credentials, key, lambda caller: caller is None, 3)
        assert await who(credentials, new)

    on(settings, test)


def test_new_terms_hold_at_once(database: Engine, settings: Settings) -> None:
    key, _ = make_key(database)

    async def test(credentials: Authenticator) -> None:
        assert (found := await who(credentials, key))
        assert found.weight == 1
        with database.begin() as tx:
            tenants.put(tx, "acme", weight=4.0, soft_cap=None, hard_cap=None)
        await becomes(credentials, key, lambda caller: caller and caller.weight == 4, 1)

    on(settings, test)


@pytest.mark.parametrize(
    "sent",
    [
        [],
        [(b"authorization", b"Bearer " + b"x" * 10_000)],
        [(b"authorization", b"Basic bWs6")],
        [(b"authorization", b"Bearer")],
        [(b"authorization", b"Bearer mk_short")],
        [(b"authorization", b"Bearer \xff\xfe")],
        [(b"x-api-key", b"")],
    ],
)
def test_what_is_no_key_is_refused_without_a_look(
    database: Engine, settings: Settings, sent: list[tuple[bytes, bytes]]
) -> None:
    make_key(database)

    async def test(credentials: Authenticator) -> None:
        assert await who(credentials, "mk_" + "x" * 43) is None
        with away(database), pytest.raises(Unauthenticated):
            await credentials.authenticate(sent)

    on(settings, test)


def test_two_credentials_are_none(database: Engine, settings: Settings) -> None:
    key, _ = make_key(database)

    async def test(credentials: Authenticator) -> None:
        assert await who(credentials, key)
        with pytest.raises(Unauthenticated):
            await credentials.authenticate([*headers(key), (b"x-api-key", key.encode())])

    on(settings, test)


def test_the_use_of_a_key_is_noted_once_a_minute(database: Engine, settings: Settings) -> None:
    key, id = make_key(database)

    def used() -> Any:
        with database.connect() as tx:
            return api_keys.get(tx, "acme", ids.parse("key", id)).last_used_at

    async def test(credentials: Authenticator) -> None:
        assert await who(credentials, key)
        first = used()
        assert first
        credentials.forget("")
        assert await who(credentials, key)
        assert used() == first
        with database.begin() as tx:
            tx.execute(text("UPDATE api_keys SET last_used_at = now() - interval '61 s'"))
        credentials.forget("")
        assert await who(credentials, key)
        assert used() >= first

    on(settings, test)


def test_a_check_costs_a_call_less_than_a_twentieth_of_a_ms(
    database: Engine, settings: Settings
) -> None:
    key, _ = make_key(database)
    checks, most_s = 20_000, 0.000_05

    async def test(credentials: Authenticator) -> None:
        sent = [(b"content-type", b"application/json"), *headers(key)]
        await credentials.authenticate(sent)
        since_s = time.process_time()
        for _ in range(checks):
            await credentials.authenticate(sent)
        assert (time.process_time() - since_s) / checks < most_s

    on(settings, test)


def test_the_api_finds_keys_but_can_not_read_them(database: Engine, settings: Settings) -> None:
    key, _ = make_key(database)

    async def test(credentials: Authenticator) -> None:
        assert await who(credentials, key)
        api = db.connect(settings.database_url, pool_size=1, role=db.API)
        with api.begin() as tx:
            assert tx.scalars(text("SELECT count(*) FROM api_keys")).one() == 0
        api.dispose()

    on(settings, test)
