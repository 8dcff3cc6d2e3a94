"""A tenant is erased: its keys at once, the rest piece by piece, and nothing of others."""

from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote
from uuid import UUID

import orjson
import pytest
from redis import Redis
from sqlalchemy import Engine, text

from jobs import clock, ids
from jobs.api_keys import NewKey, hash_key
from jobs.blobs.payloads import Payloads
from jobs.calls.records import LEFT_OUT, CallRecord, minute_key
from jobs.errors import Conflict, NotFound, Unauthenticated
from jobs.identity import OPEN
from jobs.intake.idempotency_key import Claim, kept_under
from jobs.models.builtin_models import SAMPLES
from jobs.models.pricing import Price
from jobs.settings import Settings
from jobs.store.billing import ledger, spend
from jobs.store.billing.ledger import Minute
from jobs.store.conversations import items, rows
from jobs.store.db import Tx
from jobs.store.jobs import deletion, responses, search, verbs
from jobs.store.jobs.responses import NewResponse
from jobs.store.jobs.search import Filter
from jobs.store.tenancy import acting
from jobs.store.tenants import api_keys, audit, erasure, tenants
from jobs.store.webhooks import endpoints, secrets
from jobs.usecases.submit import Order, submit
from tests.support.credentials import authenticating, is_refused, who
from tests.support.servers.identity_provider import running
from tests.support.stores.store import claim, count, end_cancelled, settle
from tests.support.stores.transactions import execute, scalar, transact
from tests.support.wait import PATIENCE_S, eventually_async
from workers.keeper import cleanup
from workers.keeper.tenant_cleanup import TenantCleanup

GONE, KEPT = "leaving", "staying"
NAMED = {"tenants", "api_keys", "audit", "usage", "spend", "spend_told"}
"""Where its name stays: what it owes, and that it was here."""


@pytest.fixture
def blobs(settings: Settings, tmp_path: Path) -> Settings:
    return settings.evolve(blobs=f"file:{tmp_path}/blobs", blob_over_kb=1)


def fill(database: Engine, settings: Settings, tenant: str) -> str:
    """Everything that a tenant may have; jobs that have ended, are paused and in hand. Its
    key."""
    asked = NewKey(tenant, name=f"key of {tenant}")
    order = Order(
        "echo",
        labels={"who": tenant},
        metadata={"who": tenant},
        webhook_url=f"https://{tenant}.example/",
    )
    payloads = Payloads.connect(settings.blobs, settings.blob_over_kb, settings.s3_endpoint)

    def post(items: int = 3) -> str:
        lines = [{"custom_id": f"{tenant}-{n}", "input": tenant * 500} for n in range(items)]
        held = Claim(tenant, str(clock.random_bits(64)), b"x")
        found = submit(database, SAMPLES, tenant, order, array=lines, claim=held, payloads=payloads)
        return str(found.id)

    transact(database, api_keys.create, asked)
    post()
    settle(database, claim(database))
    post()
    claim(database)
    paused, large = post(), post(1500)
    with database.begin() as tx:
        for job in sorted((paused, large)):  # out of the way of other claims of the test
            verbs.pause(tx, UUID(job))
        secrets.insert_secret(tx, tenant, tenant.encode(), shown=True)
        endpoint = (tenant, f"https://{tenant}.example/")
        endpoints.record_failure(tx, endpoint, gone=True, threshold=9, first_s=1, most_s=1)
        audit.record(tx, tenant=tenant, actor="key_1", act="x", target=large, request_id="req_1")
        for statement in (
            "INSERT INTO limits (tenant_id, model) VALUES (:tenant, 'echo')",
            "INSERT INTO turns VALUES ('default', :tenant, 1) ON CONFLICT DO NOTHING",
            "INSERT INTO model_routes (name, tenant_id, splits, salt, updated_by) "
            "VALUES ('echo', :tenant, '[]', '', '') ON CONFLICT DO NOTHING",
        ):
            tx.execute(text(statement), {"tenant": tenant})
        ended = orjson.dumps({"output": tenant})
        new = NewResponse(ids.new(), tenant, None, b"{}", b"[]", ended)
        responses.store(tx, new, keep_days=1)
        row = rows.create(tx, tenant, ids.new(), b"{}", 1)
        items.append(tx, row, {"msg_1": orjson.dumps(tenant)}, 1)
    return asked.secret


def begin(database: Engine, tenant: str = GONE) -> None:
    transact(database, erasure.begin, tenant)


def leaving(database: Engine, settings: Settings) -> str:
    """A tenant that has everything, and is about to be erased; its key."""
    key = fill(database, settings, GONE)
    begin(database)
    return key


def clean(database: Engine, settings: Settings, tenant: str) -> int:
    """Begins to erase a tenant that may have nothing, and forgets its traces."""
    with database.begin() as tx:
        tenants.ensure(tx, tenant)
        erasure.begin(tx, tenant)
        return TenantCleanup(settings).run_once(tx)


def left(database: Engine) -> dict[str, int]:
    row = asdict(transact(database, erasure.remaining, GONE))
    return {kind: int(found) for kind, found in row.items() if kind != "erased_at"}


def duties(settings: Settings) -> list[Callable[[Tx], int]]:
    """What the keeper does about it."""
    wanted = ("erase tenants", "erase rows", "erase payloads", "erase traces")
    found = {duty.name: duty.step for duty in cleanup.duties(settings)}
    return [end_cancelled, *(found[name] for name in wanted)]


def keep(database: Engine, settings: Settings, crash_every: int = 0) -> None:
    """Runs a keeper until nothing is left to do; where asked, its every so many-th transaction
    dies before it commits."""
    steps = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(erasure, "_MOST_JOBS", 2)
        patch.setattr(deletion, "_MOST_ITEMS", 400)
        done = 1
        while done:
            done = 0
            for duty in duties(settings):
                steps += 1
                with database.connect() as tx:
                    found = duty(tx)
                    if not crash_every or steps % crash_every:
                        tx.commit()
                done += found
            assert steps < 2000


def everywhere(database: Engine, word: str) -> set[str]:
    """The tables in which a row has this word."""
    with database.connect() as tx:
        tables = tx.scalars(
            text("""SELECT relname FROM pg_class WHERE relkind IN ('r', 'p')
                    AND relnamespace = 'public'::regnamespace""")
        ).all()
        held = "SELECT EXISTS (SELECT FROM {table} t WHERE strpos(t::text, :word) > 0)"
        hexed = word.encode().hex()
        return {
            table
            for table in tables
            for found in (word, hexed)
            if tx.scalar(text(held.format(table=table)), {"word": found})
        }


def blobs_of(settings: Settings, word: str) -> int:
    folder = Path(settings.blobs.removeprefix("file:"))
    return sum(word in path.read_text() for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("crash_every", [0, 2, 3])
def test_nothing_is_left_but_what_it_owes_and_that_it_was_here(
    database: Engine, blobs: Settings, redis_client: Redis, crash_every: int
) -> None:
    for tenant in (GONE, KEPT):
        fill(database, blobs, tenant)
        redis_client.set(kept_under(tenant, "k"), "an answer")
    assert everywhere(database, GONE) > NAMED & everywhere(database, GONE)
    assert blobs_of(blobs, GONE) > 0
    others = everywhere(database, KEPT), blobs_of(blobs, KEPT)
    begin(database)
    before = left(database)
    assert (before["open"], before["jobs"]) == (3, 4)
    keep(database, blobs, crash_every)
    assert left(database)["open"] == 1  # what a worker has in hand ends with its launch
    settle_all(database)
    keep(database, blobs, crash_every)
    assert not any(left(database).values())
    assert everywhere(database, GONE) <= NAMED
    assert everywhere(database, f"key of {GONE}") == set()
    assert everywhere(database, f"{GONE}.example") == set()
    assert blobs_of(blobs, GONE) == 0
    assert redis_client.exists(kept_under(GONE, "k")) == 0
    assert others == (everywhere(database, KEPT), blobs_of(blobs, KEPT))
    assert redis_client.exists(kept_under(KEPT, "k")) == 1


def settle_all(database: Engine) -> None:
    """Leases run out, and what they held is ended."""
    execute(database, "UPDATE slices SET state = 'ready' WHERE state = 'leased'")


def test_its_keys_end_and_open_mode_never_returns(database: Engine, settings: Settings) -> None:
    key = leaving(database, settings)
    with database.begin() as tx:
        assert api_keys.find(tx, hash_key(key)) is None
        assert api_keys.any_key(tx)
        [row] = api_keys.page(tx, GONE, None, 10)
        assert (row.name, row.hint) == ("", "")
    keep(database, settings)
    assert transact(database, api_keys.any_key)


def test_nobody_comes_back_under_its_name(database: Engine, settings: Settings) -> None:
    leaving(database, settings)
    with pytest.raises(Conflict, match="was erased"):
        transact(database, api_keys.create, NewKey(GONE))
    with pytest.raises(Conflict, match="was erased"):
        transact(database, tenants.put, GONE, weight=1.0, soft_cap=None, hard_cap=None)


def test_erasing_again_does_no_harm(database: Engine, settings: Settings) -> None:
    leaving(database, settings)
    at = [transact(database, erasure.remaining, GONE).erased_at]
    begin(database)
    at.append(transact(database, erasure.remaining, GONE).erased_at)
    assert at[0] == at[1]
    assert abs((datetime.now(UTC) - at[0]).total_seconds()) < PATIENCE_S


def test_a_job_that_was_on_its_way_in_goes_too(database: Engine, settings: Settings) -> None:
    leaving(database, settings)
    settle_all(database)
    keep(database, settings)
    assert not any(left(database).values())
    submit(database, SAMPLES, GONE, Order("echo"), array=["late"])
    assert left(database)["open"] == 1
    keep(database, settings)
    assert not any(left(database).values())
    assert count(database, "items") == 0


def test_a_tenant_that_leaves_is_told_of_nothing(database: Engine, settings: Settings) -> None:
    leaving(database, settings)
    settle_all(database)
    assert transact(database, erasure.continue_erasing) > 0
    told = "SELECT count(*) FROM webhook_deliveries WHERE type = 'job.cancelled'"
    cancelled = "SELECT count(*) FROM jobs WHERE state = 'cancelled'"
    while scalar(database, cancelled) + count(database, "deletions") < 3:
        transact(database, erasure.continue_erasing)
        assert scalar(database, told) == 0


def test_a_tenant_that_nobody_knows_is_not_erased(database: Engine) -> None:
    for act in (erasure.begin, erasure.remaining):
        with pytest.raises(NotFound):
            transact(database, act, "nobody")
    assert count(database, "tenants") == 0


@pytest.mark.parametrize("name", ["acme", "a.b:c@d-e", "a_1"])
def test_what_redis_knows_of_it_goes_and_nothing_of_others(
    database: Engine, settings: Settings, redis_client: Redis, name: str
) -> None:
    def traces(tenant: str) -> set[str]:
        quoted = quote(tenant)
        counted = f"millrace:rates:{{{quoted}}}", f"millrace:open:{{{quoted}}}:m:k"
        return {kept_under(tenant, "k"), kept_under(tenant, "*"), *counted}

    others = set.union(*(traces(other) for other in (f"{name}x", f"x{name}", "a.b:c@d-")))
    redis_client.mset(dict.fromkeys(traces(name) | others, "x"))
    clean(database, settings, name)
    assert {key.decode() for key in redis_client.keys("millrace:*")} == others


def test_records_of_its_calls_go_and_those_of_others_stay(
    database: Engine, settings: Settings, redis_client: Redis
) -> None:
    for tenant, id in (("acme", "call_a"), ("acme", "call_b"), ("acme2", "call_c")):
        record = CallRecord(id, tenant, "m", "1", "standard", "succeeded", 0, 1, 1, 1, "")
        redis_client.hset(minute_key(7), id, record.pack())
    redis_client.hset(minute_key(7), mapping={LEFT_OUT: 3, "call_d": b"of another release"})
    clean(database, settings, "acme")
    left = {name.decode() for name in redis_client.hkeys(minute_key(7))}
    assert left == {"call_c", "call_d", LEFT_OUT.decode()}


def test_a_redis_that_is_away_is_tried_again(database: Engine, settings: Settings) -> None:
    fill(database, settings, GONE)
    away = settings.evolve(redis_url="redis://127.0.0.1:1/0")
    assert clean(database, away, GONE) == 0


def test_the_keeper_may_do_it_all(database: Engine, keeper: Engine, settings: Settings) -> None:
    leaving(database, settings)
    settle_all(database)
    keep(keeper, settings)
    assert not any(left(database).values())


def test_the_api_may_begin_and_follow_it(database: Engine, api: Engine, settings: Settings) -> None:
    fill(database, settings, GONE)
    with acting(api, GONE) as tx:
        erasure.begin(tx, GONE)
        found = erasure.remaining(tx, GONE)
        assert (found.open, found.jobs) == (3, 4)
        assert len(search.page(tx, GONE, Filter(), limit=9)) == 4


@pytest.mark.anyio
async def test_a_token_that_names_a_tenant_that_was_erased_lets_nobody_in(
    database: Engine, settings: Settings
) -> None:
    transact(database, tenants.ensure, "other")
    with running() as provider:
        async with authenticating(provider.settings(settings)) as credentials:
            token = provider.token(tenant="acme")
            assert await who(credentials, token)
            transact(database, tenants.ensure, "acme")
            begin(database, "acme")
            await is_refused(credentials, token)
            assert await who(credentials, provider.token(tenant="acme", sub="else")) is None
            assert await who(credentials, provider.token(tenant="other"))


@pytest.mark.anyio
async def test_where_no_key_was_made_an_erased_default_is_closed(
    database: Engine, settings: Settings
) -> None:
    async with authenticating(settings) as credentials:
        assert await credentials.authenticate([]) == OPEN
        transact(database, tenants.ensure, OPEN.tenant)
        begin(database, OPEN.tenant)

        async def closed() -> bool:
            try:
                await credentials.authenticate([])
            except Unauthenticated:
                return True
            return False

        await eventually_async(closed)


def test_who_only_has_a_secret_or_a_bill_can_be_erased_too(database: Engine) -> None:
    """As tenants that an identity provider names: they need no key, and perhaps no job."""
    transact(database, secrets.insert_secret, "secretive", b"sealed", shown=True)
    minute = Minute(clock.now(), "billed", "echo", "1", "standard", 1, 0, 1, 1)
    transact(database, ledger.bill_calls, [minute], Price())
    for tenant in ("secretive", "billed"):
        begin(database, tenant)
        assert transact(database, tenants.is_erased, tenant)


def test_a_credential_that_lives_a_moment_longer_leaves_no_address(database: Engine) -> None:
    transact(database, api_keys.create, NewKey(GONE))
    begin(database)
    with acting(database, GONE) as tx:
        spend.set_endpoint(tx, GONE, "https://leaving.example/")
        assert spend.endpoint(tx, GONE) is None
