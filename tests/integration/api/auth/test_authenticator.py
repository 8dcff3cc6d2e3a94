"""Who is recognized by what, on a real database: at once where it changes."""

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from api.auth.authenticator import Authenticator
from jobs import ids
from jobs.errors import Unauthenticated
from jobs.identity import OPEN, ROLES, Caller, Limit
from jobs.settings import Settings
from jobs.store import db
from jobs.store.tenants import api_keys, limits, tenants
from tests.support.cases import each
from tests.support.credentials import authenticating, becomes, headers, is_refused, who
from tests.support.keys import make_key
from tests.support.stores.transactions import execute, scalar, transact

pytestmark = pytest.mark.anyio

MOST_STEPS = 20


async def test_a_key_stands_for_its_tenant_and_what_it_may(
    database: Engine, only_told: None, auth: Authenticator
) -> None:
    key, id = make_key(database, role="operator", scopes=frozenset({"read", "operate"}))
    transact(database, tenants.put, "acme", weight=3.0, soft_cap=None, hard_cap=None)
    limit = "INSERT INTO limits (tenant_id, key_id, job_items) VALUES ('acme', :of, 7)"
    for of in ("", id, "key_another"):
        execute(database, limit, {"of": of})
    found = await auth.authenticate([(b"x-api-key", key.encode())])
    limits = (Limit(job_items=7), Limit(key=id, job_items=7))
    scopes = frozenset({"read", "operate"})
    assert found == Caller("acme", "operator", scopes, id, 3.0, limits)
    assert await auth.authenticate(headers(key)) is found


async def test_without_any_key_everybody_on_loopback_is_let_in_and_the_first_key_ends_it_at_once(
    database: Engine, auth: Authenticator
) -> None:
    assert await auth.authenticate([]) == OPEN
    assert await who(auth, "whatever") == OPEN
    key, _ = make_key(database)
    await is_refused(auth, "whatever")
    assert (found := await who(auth, key))
    assert (found.tenant, found.scopes) == ("acme", ROLES["tenant"])
    with pytest.raises(Unauthenticated):
        await auth.authenticate([])


async def test_a_rotated_key_has_the_limits_of_the_old_one(
    database: Engine, auth: Authenticator
) -> None:
    _, id = make_key(database)
    with database.begin() as tx:
        limits.put(tx, "acme", [Limit(key=id, job_items=7), Limit(job_items=9)])
        row, key = api_keys.rotate(tx, "acme", ids.parse("key", id), 0)
    assert (found := await who(auth, key))
    mine = Limit(key=ids.show("key", row.id), job_items=7)
    assert set(found.limits) == {mine, Limit(job_items=9)}


async def test_without_any_key_no_other_site_asks_in_place_of_who_sits_here(
    database: Engine, auth: Authenticator
) -> None:
    ours = [b"127.0.0.1:8000", b"localhost", b"LOCALHOST:1", b"[::1]:8000", b"[::1]"]
    others = [b"rebound.example:8000", b"localhost.example", b"127.0.0.1.example", b"", b"[::2]:1"]
    origins, sites = (b"https://other.example", b"null"), (b"same-origin", b"none")
    foreign = [*((b"origin", one) for one in origins), (b"sec-fetch-site", b"cross-site")]
    refused = [[(b"host", host)] for host in others]
    for host in ours:
        own = [(b"origin", b"http://" + host), *((b"sec-fetch-site", site) for site in sites)]
        for page in own:
            assert await auth.authenticate([(b"host", host), page]) == OPEN
        refused += [[(b"host", host), page] for page in foreign]
    for sent, case in each(refused):
        with case, pytest.raises(Unauthenticated):
            await auth.authenticate(sent)
    key, _ = make_key(database)
    await becomes(auth, key, lambda caller: caller != OPEN)
    keyed = [(b"host", others[0]), *foreign, (b"x-api-key", key.encode())]
    assert (found := await auth.authenticate(keyed))
    assert found.tenant == "acme"


async def test_who_listens_elsewhere_lets_nobody_in_without_a_key(settings: Settings) -> None:
    async with authenticating(settings.evolve(host="0.0.0.0")) as auth:
        with pytest.raises(Unauthenticated):
            await auth.authenticate([])


async def test_a_revoked_key_is_refused_at_once(
    database: Engine, only_told: None, auth: Authenticator
) -> None:
    key, id = make_key(database)
    assert await who(auth, key)
    transact(database, api_keys.revoke, "*", ids.parse("key", id))
    await is_refused(auth, key)


async def test_a_revoked_key_is_refused_within_seconds_without_word_of_it(
    database: Engine, settings: Settings, advance: Callable[[float], None]
) -> None:
    key, id = make_key(database)
    async with authenticating(settings, listening=False) as auth:
        assert await who(auth, key)
        transact(database, api_keys.revoke, "*", ids.parse("key", id))
        advance(4)
        await is_refused(auth, key)


async def test_a_key_ends_when_it_expires(
    database: Engine, only_told: None, auth: Authenticator, advance: Callable[[float], None]
) -> None:
    key, _ = make_key(database, ttl_s=60)
    assert await who(auth, key)
    execute(database, "UPDATE api_keys SET expires_at = now()")
    assert await who(auth, key), "nobody was told, and by our clock its minute is not over"
    advance(60)
    await is_refused(auth, key)


async def test_a_rotated_key_goes_on_as_long_as_it_was_said(
    database: Engine, auth: Authenticator
) -> None:
    key, id = make_key(database, scopes=frozenset({"read"}))
    with database.begin() as tx:
        row, new = api_keys.rotate(tx, "*", ids.parse("key", id), overlap_s=3600)
        old = api_keys.get(tx, "acme", ids.parse("key", id))
    assert (old.replaced_by, row.expires_at) == (row.id, None)
    first, second = await who(auth, key), await who(auth, new)
    assert None not in (first, second)
    assert (first.tenant, first.scopes) == (second.tenant, second.scopes)
    left_s = (old.expires_at or old.read_at) - old.read_at
    assert left_s == timedelta(hours=1)
    execute(database, "UPDATE api_keys SET expires_at = now() WHERE replaced_by IS NOT NULL")
    await is_refused(auth, key)
    assert await who(auth, new)


async def test_new_terms_hold_at_once(
    database: Engine, only_told: None, auth: Authenticator
) -> None:
    key, _ = make_key(database)
    assert (found := await who(auth, key))
    assert found.weight == 1
    transact(database, tenants.put, "acme", weight=4.0, soft_cap=None, hard_cap=None)
    await becomes(auth, key, lambda caller: caller and caller.weight == 4)


async def test_what_is_no_key_is_refused_without_a_look(
    database: Engine, only_told: None, auth: Authenticator
) -> None:
    key, _ = make_key(database)
    assert await who(auth, key)
    assert await who(auth, "mk_" + "x" * 43) is None
    long = b"Bearer " + b"x" * 10_000
    words = (long, b"Basic bWs6", b"Bearer", b"Bearer mk_short", b"Bearer \xff\xfe")
    sent = [[], [(b"x-api-key", b"")], *([(b"authorization", word)] for word in words)]
    two = [*headers(key), (b"x-api-key", key.encode())]
    execute(database, "ALTER TABLE api_keys RENAME COLUMN hash TO gone")  # a look would fail
    for credentials, case in each([*sent, two]):
        with case, pytest.raises(Unauthenticated):
            await auth.authenticate(credentials)


async def test_the_use_of_a_key_is_noted_once_a_minute(
    database: Engine, auth: Authenticator
) -> None:
    key, id = make_key(database)

    async def use() -> Any:
        auth.forget("")
        assert await who(auth, key)
        return transact(database, api_keys.get, "acme", ids.parse("key", id)).last_used_at

    first = await use()
    assert first
    assert await use() == first
    execute(database, "UPDATE api_keys SET last_used_at = now() - interval '61 s'")
    assert await use() >= first


async def test_a_check_of_a_known_key_costs_a_call_few_steps(
    database: Engine, only_told: None, auth: Authenticator
) -> None:
    """Calls of functions are counted: a time would depend on the machine."""
    key, _ = make_key(database)
    sent = [(b"content-type", b"application/json"), *headers(key)]
    await auth.authenticate(sent)
    counts = []
    for _ in range(5):  # what the garbage collector calls comes in one of them at most
        steps: list[str] = []
        sys.setprofile(lambda frame, event, _, steps=steps: steps.append(event))  # type: ignore[misc]
        await auth.authenticate(sent)
        sys.setprofile(None)
        counts.append(sum(event in ("call", "c_call") for event in steps))
    assert min(counts) <= MOST_STEPS


async def test_the_api_finds_keys_but_can_not_read_them(
    database: Engine, settings: Settings, auth: Authenticator
) -> None:
    assert await who(auth, make_key(database)[0])
    api = db.connect(settings.database_url, pool_size=1, role=db.API)
    assert scalar(api, "SELECT count(*) FROM api_keys") == 0
    api.dispose()
