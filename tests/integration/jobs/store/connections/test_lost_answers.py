"""Writers whose commits PostgreSQL makes, or not, and whose answers never come.

Each operation runs once for each of its commits, whose answer is lost, and goes on as its process
or its client would. It must end as one that lost none.
"""

import io
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any
from uuid import UUID

import orjson
import pytest
from sqlalchemy import Engine

from jobs import ids
from jobs.blobs.payloads import REFERENCE_MARK
from jobs.errors import Conflict, PayloadLost
from jobs.intake.idempotency_key import Claim
from jobs.models.builtin_models import SAMPLES
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.models.registry import Registry
from jobs.rollouts.policy import Policy
from jobs.settings import Settings
from jobs.store import db
from jobs.store.billing import ledger, spend
from jobs.store.billing.ledger import Minute
from jobs.store.jobs import files as file_rows
from jobs.store.jobs import idempotency, transfers, verbs
from jobs.store.notifier import WorkNotifier
from jobs.store.tenancy import EVERYBODY, acting
from jobs.store.tenants import erasure, tenants
from jobs.store.webhooks import deliveries
from jobs.usecases import rollouts, tenant_files, webhook_secret
from jobs.usecases.submit import Order, prepare, submit, submit_source
from jobs.usecases.submit_together import store_together
from tests.support.servers.receiver import Receiver, receiving
from tests.support.stores import store
from tests.support.stores.lost_answers import LostAnswers
from tests.support.stores.soundness import broken_invariants
from tests.support.stores.transactions import execute, fetch, scalar, scalars, transact
from tests.support.wait import PATIENCE_S, eventually
from workers.keeper import cleanup
from workers.keeper.service import DatabaseService
from workers.transfers.child import run_transfer
from workers.transfers.context import TransferContext
from workers.webhooks.sender import WebhookSender

ALICE = "alice"
LONG = "x" * 5000
"""Lies in the blob store."""
_TRIES = 9
_numbers = count()


@dataclass
class Stage:
    """Pools that lose answers, and one that loses none, which the operations run on."""

    settings: Settings
    database: Engine
    api: Engine
    keeper: Engine
    context: TransferContext
    sender: WebhookSender
    receiver: Receiver
    notifier: WorkNotifier

    @property
    def number(self) -> int:
        """Another one each time."""
        return next(_numbers)

    @property
    def blobs(self) -> Any:
        return tenant_files.blob_store(self.settings)

    def transfer(self) -> bool:
        """Carries what is due, as if the leases of lost claims had lapsed; True once all is."""
        execute(self.database, "UPDATE transfers SET due_at = now()")
        mine = transact(self.keeper, transfers.claim, 60)
        if mine and (outcome := run_transfer(self.context, mine)):
            transact(self.keeper, transfers.postpone, mine, 0, outcome.error, end=outcome.end)
        return not scalar(self.database, "SELECT count(*) FROM transfers")

    def acts(self, verb: Callable[..., object], job: UUID) -> "Act":
        """A verb of an api."""

        def act() -> None:
            with acting(self.api, "default") as tx:
                verb(tx, job, "default")

        return act

    def keeper_acts(self, do: Callable[..., object], *args: Any) -> "Act":
        """Something that a keeper writes."""

        def act() -> None:
            transact(self.keeper, do, *args)

        return act

    def duties(self) -> None:
        """All that a keeper removes."""
        for duty in cleanup.duties(self.settings):
            service = DatabaseService(duty, self.keeper, 1)
            while service.run_once():
                pass

    def told(self, job: UUID) -> list[Any]:
        """Types of the webhooks of a job."""
        query = "SELECT type FROM webhook_deliveries WHERE job_id = :job"
        return scalars(self.database, query, {"job": job})

    def file(self, *lines: Any) -> dict[str, str]:
        content = io.BytesIO(b"\n".join(map(orjson.dumps, lines)))
        asked: dict[str, Any] = {"purpose": "batch", "filename": "a", "expires_in_s": None}
        row = tenant_files.add(self.database, self.blobs, ALICE, content, **asked)
        return {"file": ids.show("file", row.id)}


@pytest.fixture
def stage(
    settings: Settings, database: Engine, api: Engine, keeper: Engine, database_url: str
) -> Iterator[Stage]:
    settings = settings.evolve(
        blob_over_kb=1, blobs=f"file:{settings.home}/blobs", webhook_allow="127.0.0.1"
    )
    with receiving() as receiver, closing(WorkNotifier(database_url)) as notifier:
        context = TransferContext.open(settings)
        sender = WebhookSender(settings, lease_s=2 * PATIENCE_S, timeout_s=PATIENCE_S)
        with closing(sender):
            yield Stage(settings, database, api, keeper, context, sender, receiver, notifier)
        context.database.dispose()


@pytest.fixture
def lost(stage: Stage) -> LostAnswers:
    pools = stage.api, stage.keeper, stage.context.database, stage.sender._database  # noqa: SLF001
    return LostAnswers(*pools)


Act = Callable[[], object]
"""Does the operation, or what is left of it; False: there is more to do."""
Operation = Callable[[Stage], tuple[Act, Act]]
"""Prepares an operation on objects of its own; returns it, and what checks its end."""


def submission(stage: Stage) -> tuple[Act, Act]:
    claim = Claim(ALICE, f"key-{stage.number}", b"\0" * 32)

    def act() -> None:
        with acting(stage.api, ALICE) as tx:
            if idempotency.find(tx, claim):
                return
        submit(
            stage.api, SAMPLES, ALICE, Order("echo"), array=["x", LONG], claim=claim,
            payloads=stage.context.payloads,
        )  # fmt: skip

    return act, lambda: assert_submitted(stage, claim)


def submission_with_others(stage: Stage) -> tuple[Act, Act]:
    claim = Claim(ALICE, f"key-{stage.number}", b"\0" * 32)

    def act() -> None:
        new = [
            prepare(
                SAMPLES, tenant, Order("echo"), array=["x", LONG], claim=its,
                payloads=stage.context.payloads,
            )
            for tenant, its in ((ALICE, claim), ("bob", None))
        ]  # fmt: skip
        for outcome in store_together(stage.api, new, stage.notifier):
            if isinstance(outcome, Exception):
                raise outcome

    return act, lambda: assert_submitted(stage, claim)


def assert_submitted(stage: Stage, claim: Claim) -> None:
    query = """
        SELECT input FROM idempotency_keys JOIN items USING (job_id) WHERE key = :key ORDER BY seq
    """
    short, long = scalars(stage.database, query, {"key": claim.key})
    assert (short, long[:1]) == ('"x"', REFERENCE_MARK)
    assert orjson.loads(stage.context.payloads.read(long)) == LONG
    query = """
        SELECT count(*) FROM jobs WHERE tenant_id = :tenant
        AND NOT EXISTS (SELECT FROM idempotency_keys WHERE job_id = jobs.id)
    """
    assert scalar(stage.database, query, {"tenant": ALICE}) == 0


def reading(stage: Stage) -> tuple[Act, Act]:
    job = submit_source(
        stage.database, SAMPLES, ALICE, Order("echo"), stage.file("x", LONG)
    ).id  # fmt: skip

    def check() -> None:
        found = fetch(
            stage.database,
            "SELECT state, total, (SELECT count(*) FROM items WHERE job_id = id) FROM jobs"
            " WHERE id = :job",
            {"job": job},
        )
        assert found == [("queued", 2, 2)]

    return stage.transfer, check


def reading_of_faults(stage: Stage) -> tuple[Act, Act]:
    order = Order("echo", webhook_url="https://hooks.example/")
    source = stage.file({"custom_id": 1})
    job = submit_source(stage.database, SAMPLES, ALICE, order, source).id

    def check() -> None:
        its = {"job": job}
        assert scalar(stage.database, "SELECT state FROM jobs WHERE id = :job", its) == "failed"
        assert stage.told(job) == ["job.failed"]

    return stage.transfer, check


def writing(stage: Stage) -> tuple[Act, Act]:
    order = Order("echo", webhook_url="https://hooks.example/")
    job = submit(
        stage.database, SAMPLES, ALICE, order, array=["x", LONG], target={"files": {}},
        payloads=stage.context.payloads,
    ).id  # fmt: skip
    store.settle(stage.database, store.claim(stage.database))

    def check() -> None:
        query = "SELECT manifest FROM jobs WHERE id = :job"
        manifest = orjson.loads(scalar(stage.database, query, {"job": job}))
        files = transact(
            stage.database, file_rows.page, ALICE, purpose="batch_output", after=None, limit=9
        )
        its = [one for one in files if ids.show("job", job) in one.filename]
        assert {part["file"] for part in manifest["parts"]} == {
            ids.show("file", one.id) for one in its
        }
        for one in its:
            assert len(stage.blobs.get(one.key)) == one.bytes
        assert stage.told(job) == ["job.completed"]

    return stage.transfer, check


def delivery(stage: Stage) -> tuple[Act, Act]:
    job = submit(
        stage.database, SAMPLES, ALICE, Order("echo", webhook_url=stage.receiver.url), array=["x"]
    ).id
    transact(stage.database, verbs.cancel, job)
    before = len(stage.receiver.received)

    def act() -> bool:
        execute(stage.database, "UPDATE webhook_deliveries SET due_at = now()")
        in_flight = stage.sender._in_flight  # noqa: SLF001 - those under way have no other trace
        stage.sender.run_once()
        eventually(lambda: not in_flight.total())
        return state() != "pending"

    def state() -> str:
        [row] = transact(stage.database, deliveries.of_job, ALICE, job)
        return row.state

    def check() -> None:
        assert state() == "delivered"
        assert scalar(stage.database, "SELECT count(*) FROM webhook_endpoints") == 0
        received = stage.receiver.received[before:]
        assert len({request.headers["webhook-id"] for request in received}) == 1

    return act, check


def retry(stage: Stage) -> tuple[Act, Act]:
    job = store.post(stage.database, "x")
    transact(stage.database, verbs.cancel, job)

    def check() -> None:
        row = store.job(stage.database, job)
        assert (row.state, row.generation) == ("queued", 2)

    return stage.acts(verbs.retry, job), check


def cancellation(stage: Stage) -> tuple[Act, Act]:
    job = store.post(stage.database, "x", webhook_url="https://hooks.example/")

    def check() -> None:
        assert store.job(stage.database, job).state == "cancelled"
        assert stage.told(job) == ["job.cancelled"]

    return stage.acts(verbs.cancel, job), check


def deletion(stage: Stage) -> tuple[Act, Act]:
    payloads = stage.context.payloads
    order, more = Order("echo"), {"array": ["x", LONG], "payloads": payloads}
    job = submit(stage.database, SAMPLES, "default", order, **more).id
    inputs = scalars(stage.database, "SELECT input FROM items WHERE job_id = :job", {"job": job})
    [reference] = [one for one in inputs if one.startswith(REFERENCE_MARK)]
    transact(stage.database, verbs.cancel, job)
    transact(stage.database, verbs.delete, job)

    def check() -> None:
        assert not store.count(stage.database, "items", job)
        with pytest.raises(PayloadLost):
            payloads.read(reference)

    return stage.duties, check


def erasure_of_a_tenant(stage: Stage) -> tuple[Act, Act]:
    tenant = f"tenant-{stage.number}"
    submit(stage.database, SAMPLES, tenant, Order("echo"), array=["x"])

    def act() -> bool:
        with acting(stage.api, EVERYBODY) as tx:
            erasure.begin(tx, tenant)
        stage.duties()
        left = transact(stage.database, erasure.remaining, tenant)
        return not (left.jobs or left.erasing or left.others)

    return act, lambda: None


def billing_of_calls(stage: Stage) -> tuple[Act, Act]:
    tenant, price = f"tenant-{stage.number}", Price(per_item=Decimal(2))
    minute = Minute(datetime(2026, 1, 1, tzinfo=UTC), tenant, "m", "1", "standard", 3, 0, 3, 9)

    def check() -> None:
        for table, what, expected in (("usage", "succeeded", 3), ("spend", "amount", 6)):
            query = f"SELECT {what} FROM {table} WHERE tenant_id = :tenant"
            assert scalar(stage.database, query, {"tenant": tenant}) == expected

    return stage.keeper_acts(ledger.bill_calls, [minute], price), check


def notice_of_spend(stage: Stage) -> tuple[Act, Act]:
    tenant = f"tenant-{stage.number}"
    with stage.database.begin() as tx:
        tenants.put(tx, tenant, weight=1, soft_cap=Decimal(5), hard_cap=None)
        spend.set_endpoint(tx, tenant, "https://hooks.example/")
        minute = Minute(db.now(tx), tenant, "m", "1", "standard", 3, 0, 3, 9)
        ledger.bill_calls(tx, [minute], Price(per_item=Decimal(2)))

    def check() -> None:
        query = "SELECT type FROM webhook_deliveries WHERE tenant_id = :tenant"
        assert scalars(stage.database, query, {"tenant": tenant}) == ["usage.threshold"]

    return stage.keeper_acts(spend.notify), check


def start_of_a_rollout(stage: Stage) -> tuple[Act, Act]:
    name = f"m{stage.number}"

    def act() -> None:
        with suppress(Conflict):  # there is one by now
            start_rollout(stage.api, name)

    return act, lambda: assert_rolled_out(stage, name, "1", "start")


def promotion(stage: Stage) -> tuple[Act, Act]:
    name = f"m{stage.number}"
    start_rollout(stage.database, name)

    def act() -> None:
        with suppress(Conflict), acting(stage.api, EVERYBODY) as tx:  # it is promoted by now
            rollouts.act(tx, name, "promote", "key_1")

    return act, lambda: assert_rolled_out(stage, name, "2", "start", "promote")


def start_rollout(database: Engine, name: str) -> None:
    registry = Registry([Model(name, version, "echo") for version in ("1", "2")])
    with acting(database, EVERYBODY) as tx:
        rollouts.start(tx, registry, name, "2", policy=Policy(), actor="key_1", tenant=ALICE)


def assert_rolled_out(stage: Stage, name: str, stable: str, *acts: str) -> None:
    query = """
        SELECT act FROM rollout_events e JOIN rollouts r ON r.id = e.rollout_id
        WHERE name = :name ORDER BY e.id
    """
    assert scalars(stage.database, query, {"name": name}) == [*acts]
    query = "SELECT version FROM model_aliases WHERE name = :name AND alias = 'stable'"
    assert scalar(stage.database, query, {"name": name}) == stable


def rotation_of_a_secret(stage: Stage) -> tuple[Act, Act]:
    tenant, key = f"tenant-{stage.number}", stage.settings.secret_key
    with acting(stage.database, tenant) as tx:
        [known] = webhook_secret.signing_secrets(tx, key, tenant)  # to the receivers
    seen = list[str]()

    def act() -> None:
        with acting(stage.api, tenant) as tx:
            new = webhook_secret.rotate(tx, key, tenant)["secret"]
        seen.append(new)

    def check() -> None:
        with acting(stage.database, tenant) as tx:
            newest, *before = webhook_secret.signing_secrets(tx, key, tenant)
        assert [newest] == seen
        assert known in before

    return act, check


OPERATIONS: list[Operation] = [
    submission, submission_with_others, reading, reading_of_faults, writing, delivery, retry,
    cancellation, deletion, erasure_of_a_tenant, billing_of_calls, notice_of_spend,
    start_of_a_rollout, promotion, rotation_of_a_secret,
]  # fmt: skip


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.__name__)
def test_an_operation_ends_as_if_every_answer_had_come(
    operation: Operation, stage: Stage, lost: LostAnswers
) -> None:
    for which in lost.each():
        act, check = operation(stage)
        for _ in range(_TRIES):
            with suppress(db.CONNECTION_ERRORS):
                if act() is not False:
                    break
        else:
            raise AssertionError(f"{which}: it comes to no end")
        check()
    assert broken_invariants(stage.database) == set()
