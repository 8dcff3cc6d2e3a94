"""Deliveries from the end of a job to their own end, with real endpoints and several keepers."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict
from ssl import SSLContext
from typing import Any
from uuid import UUID

import httpx
import orjson
import pytest
from sqlalchemy import Engine, text
from standardwebhooks import Webhook

from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.jobs import read, verbs
from jobs.store.queue import claim, settle
from jobs.store.queue.settle import Result
from jobs.store.webhooks import deliveries as webhooks
from jobs.store.webhooks import endpoints
from jobs.usecases import webhook_secret
from jobs.usecases.submit import Order, submit
from jobs.views import jobs as views
from tests.support.servers.receiver import Received, Receiver, Reply, receiving
from tests.support.stores.transactions import execute, scalar, transact
from tests.support.wait import PATIENCE_S, eventually
from workers.keeper.service import run_service
from workers.webhooks import retry_policy
from workers.webhooks import sender as senders
from workers.webhooks.sender import AT_ONCE, AT_ONCE_EACH, WebhookSender

ECHO = SAMPLES.resolve("echo")
TENANT = "default"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


@pytest.fixture
def reach(settings: Settings) -> Settings:
    return settings.evolve(webhook_allow="127.0.0.1", keeper_interval_s=0.02)


@pytest.fixture
def sender(reach: Settings) -> Iterator[WebhookSender]:
    running = patient_sender(reach)
    yield running
    running.close()


def patient_sender(settings: Settings) -> WebhookSender:
    """Sender whose deliveries end by an answer alone, however busy the machine is."""
    return WebhookSender(settings, lease_s=2 * PATIENCE_S, timeout_s=PATIENCE_S)


def post(database: Engine, url: str | None, *items: object) -> UUID:
    order = Order("echo", webhook_url=url)
    id: UUID = submit(database, SAMPLES, TENANT, order, array=items or ["x"]).id
    return id


def cancelled(database: Engine, url: str | None) -> UUID:
    job = post(database, url)
    transact(database, verbs.cancel, job)
    return job


def open_breaker(database: Engine, url: str, open_s: float) -> None:
    terms = {"gone": False, "threshold": 1, "first_s": open_s, "most_s": open_s}
    transact(database, endpoints.record_failure, (TENANT, url), **terms)


def complete(database: Engine) -> None:
    """Runs everything that is claimable."""
    with database.begin() as tx:
        leases = claim.claim(tx, 1, {ECHO: 1000}, lease_s=60)
        settle.settle(
            tx,
            leases,
            [
                Result(leases[n].job_id, TENANT, seq, "succeeded", 1, 0.5, None, value, None)
                for n, seq, value, *_ in claim.read_inputs(tx, leases)
            ],
        )


def expired(database: Engine, url: str) -> UUID:
    job = post(database, url)
    transact(database, verbs.expire, job)
    return job


def drain(sender: WebhookSender) -> None:
    """Until nothing is due and nothing in flight."""
    in_flight = sender._in_flight  # noqa: SLF001 - those under way have no other trace
    eventually(lambda: not in_flight.total() and not sender.run_once())


def run_sql(database: Engine, statement: str, **values: object) -> None:
    execute(database, statement, values)


def make_due(database: Engine) -> None:
    """As if the time until the next try had passed."""
    run_sql(database, "UPDATE webhook_deliveries SET due_at = now() WHERE state = 'pending'")


def deliveries(database: Engine, job: UUID) -> list[dict[str, Any]]:
    return [asdict(row) for row in transact(database, webhooks.of_job, TENANT, job)]


def breaker(database: Engine) -> dict[str, Any]:
    with database.connect() as tx:
        found = tx.execute(
            text("SELECT *, extract(epoch FROM open_until - now()) AS s FROM webhook_endpoints")
        )
        return dict(found.mappings().one())


def signing_secrets(database: Engine, settings: Settings) -> list[str]:
    return transact(database, webhook_secret.signing_secrets, settings.secret_key, TENANT)


def test_what_is_sent_is_the_job_as_it_ended_and_the_reference_package_verifies_it(
    database: Engine, reach: Settings, receiver: Receiver, sender: WebhookSender
) -> None:
    job = post(database, receiver.url, "a", {"custom_id": 'é\\"', "input": None})
    complete(database)
    drain(sender)
    [request] = receiver.received
    [secret] = signing_secrets(database, reach)
    message = Webhook(secret).verify(request.body, request.headers)
    shown = orjson.loads(orjson.dumps(views.job_object(transact(database, read.one, TENANT, job))))
    assert message == {
        "type": "job.completed", "timestamp": shown["finished_at"], "data": shown,
    }  # fmt: skip
    [delivery] = deliveries(database, job)
    assert request.id == ids.show("msg", delivery["id"])
    assert request.headers["content-type"] == "application/json"
    assert (delivery["state"], delivery["tries"], delivery["last_status"]) == ("delivered", 1, 204)


def test_every_way_to_end_writes_one_delivery_of_its_type(database: Engine) -> None:
    url = "https://example.com/"
    ways = {
        "job.completed": post(database, url), "job.cancelled": cancelled(database, url),
        "job.expired": expired(database, url),
    }  # fmt: skip
    complete(database)
    found = {kind: [row["type"] for row in deliveries(database, job)] for kind, job in ways.items()}
    assert found == {kind: [kind] for kind in ways}


def test_a_delivery_is_there_exactly_if_the_end_is(database: Engine) -> None:
    job = post(database, "https://example.com/")
    with database.connect() as tx:
        verbs.cancel(tx, job)
        assert len(webhooks.of_job(tx, TENANT, job)) == 1
        tx.rollback()
    assert deliveries(database, job) == []
    assert deliveries(database, cancelled(database, None)) == []


def test_an_end_after_a_retry_is_told_under_an_id_of_its_own(
    database: Engine, receiver: Receiver, sender: WebhookSender
) -> None:
    job = cancelled(database, receiver.url)
    transact(database, verbs.retry, job)
    complete(database)
    drain(sender)
    told = [orjson.loads(r.body)["data"]["generation"] for r in receiver.received]
    assert sorted(told) == [1, 2]  # both are due: they are sent side by side
    assert len({request.id for request in receiver.received}) == 2
    assert [row["generation"] for row in deliveries(database, job)] == [2, 1]


def test_failures_are_tried_eight_times_under_one_id_and_then_no_more(
    database: Engine, receiver: Receiver, sender: WebhookSender
) -> None:
    receiver.reply = lambda _: Reply(500)
    job = cancelled(database, receiver.url)
    for tries in range(1, retry_policy.TRIES + 1):
        drain(sender)
        [delivery] = deliveries(database, job)
        assert (delivery["tries"], len(receiver.received)) == (tries, tries)
        make_due(database)
    assert (delivery["state"], delivery["last_error"]) == ("failed", "answered 500")
    assert len({request.id for request in receiver.received}) == 1
    assert len({request.body for request in receiver.received}) == 1
    drain(sender)
    assert len(receiver.received) == retry_policy.TRIES


def test_retry_after_is_heeded(database: Engine, receiver: Receiver, sender: WebhookSender) -> None:
    receiver.reply = lambda _: Reply(429, {"Retry-After": "3600"})
    job = cancelled(database, receiver.url)
    drain(sender)
    [delivery] = deliveries(database, job)
    assert 3590 < (delivery["due_at"] - delivery["created_at"]).total_seconds() < 3700


def test_410_disables_the_endpoint_until_a_redelivery_asks_for_it(
    database: Engine, receiver: Receiver, sender: WebhookSender
) -> None:
    receiver.reply = lambda _: Reply(410)
    first = cancelled(database, receiver.url)
    drain(sender)
    second = cancelled(database, receiver.url)
    elsewhere = cancelled(database, receiver.url + "/else")
    receiver.reply = lambda _: Reply(204)
    drain(sender)
    states = [deliveries(database, job)[0]["state"] for job in (first, second, elsewhere)]
    assert states == ["disabled", "disabled", "delivered"]
    assert len(receiver.of("/hook")) == 1
    with database.begin() as tx:
        again = webhooks.redeliver(tx, TENANT, second)
        assert again is not None
        endpoints.close_breaker(tx, (TENANT, receiver.url))
    drain(sender)
    assert deliveries(database, second)[0]["state"] == "delivered"
    assert receiver.of("/hook")[1].id == ids.show("msg", again.id)


def test_a_breaker_opens_after_failures_in_a_row_and_one_probe_closes_it(
    database: Engine, receiver: Receiver, sender: WebhookSender
) -> None:
    receiver.reply = lambda _: Reply(503)
    failing = [cancelled(database, receiver.url) for _ in range(retry_policy.BREAKER_THRESHOLD)]
    drain(sender)
    assert len(receiver.received) == retry_policy.BREAKER_THRESHOLD
    assert 0 < breaker(database)["s"] <= retry_policy.BREAKER_FIRST_S
    make_due(database)
    drain(sender)  # it is open: they wait, at no cost
    assert len(receiver.received) == retry_policy.BREAKER_THRESHOLD
    assert {deliveries(database, job)[0]["tries"] for job in failing} == {1}

    half_open(database)
    drain(sender)  # one probe; it fails, and the breaker is open for twice as long
    assert len(receiver.received) == retry_policy.BREAKER_THRESHOLD + 1
    assert breaker(database)["s"] > retry_policy.BREAKER_FIRST_S

    receiver.reply = lambda _: Reply(204)
    half_open(database)
    drain(sender)  # one probe; it succeeds, and the others follow when they are due
    assert len(receiver.received) >= retry_policy.BREAKER_THRESHOLD + 2
    make_due(database)
    drain(sender)
    assert {deliveries(database, job)[0]["state"] for job in failing} == {"delivered"}


def half_open(database: Engine) -> None:
    run_sql(database, "UPDATE webhook_endpoints SET open_until = now()")
    make_due(database)


def test_while_a_probe_is_out_no_keeper_sends_another(
    database: Engine, reach: Settings, receiver: Receiver, sender: WebhookSender
) -> None:
    for _ in range(5):
        cancelled(database, receiver.url)
    open_breaker(database, receiver.url, 0.0)
    answering = threading.Event()
    receiver.reply = lambda _: Reply(204) if answering.wait(PATIENCE_S) else Reply(500)
    other = patient_sender(reach)
    assert (sender.run_once(), other.run_once(), sender.run_once()) == (1, 0, 0)
    answering.set()
    drain(sender)
    make_due(database)
    drain(other)
    other.close()
    assert len(receiver.received) == 5


def test_what_a_breaker_held_back_for_too_long_has_failed(
    database: Engine, receiver: Receiver, sender: WebhookSender
) -> None:
    job = cancelled(database, receiver.url)
    open_breaker(database, receiver.url, 60.0)
    run_sql(database, "UPDATE webhook_deliveries SET requested_at = now() - interval '4 days'")
    drain(sender)
    assert deliveries(database, job)[0]["state"] == "failed"
    assert receiver.received == []


def test_a_keeper_that_dies_between_sending_and_recording_sends_nothing_less(
    database: Engine, reach: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = cancelled(database, receiver.url)
    dying = WebhookSender(reach, lease_s=0.3)
    with monkeypatch.context() as patched:
        patched.setattr(senders.store, "record", _die)
        assert dying.run_once() == 1
        dying.close()
    assert deliveries(database, job)[0]["state"] == "pending"
    heir = patient_sender(reach)
    eventually(heir.run_once)
    heir.close()
    assert len(receiver.received) == 2
    assert len({request.id for request in receiver.received}) == 1
    assert deliveries(database, job)[0]["state"] == "delivered"


def _die(*_: object) -> None:
    raise RuntimeError("killed")


def test_a_sender_whose_lease_lapsed_records_nothing(
    database: Engine, receiver: Receiver, sender: WebhookSender
) -> None:
    job = cancelled(database, receiver.url)
    answering = threading.Event()
    receiver.reply = lambda _: Reply(410) if answering.wait(PATIENCE_S) else Reply(500)
    assert sender.run_once() == 1
    eventually(lambda: receiver.received)
    run_sql(database, "UPDATE webhook_deliveries SET tries = tries + 1")  # another one claimed it
    answering.set()
    drain(sender)
    assert deliveries(database, job)[0]["state"] == "pending"
    assert scalar(database, "SELECT count(*) FROM webhook_endpoints") == 0


def test_a_try_from_before_a_redelivery_records_nothing(
    database: Engine, reach: Settings, receiver: Receiver, sender: WebhookSender
) -> None:
    job = cancelled(database, receiver.url)
    answering = threading.Event()
    receiver.reply = lambda _: Reply(410) if answering.wait(PATIENCE_S) else Reply(500)
    assert sender.run_once() == 1
    eventually(lambda: receiver.received)
    transact(database, webhooks.redeliver, TENANT, job)
    with database.begin() as tx:  # the first try of the redelivery, by another keeper
        [again] = webhooks.claim(tx, {}, most=1, most_each=1, lease_s=60, patience_s=60)
    assert again.tries == 1
    answering.set()
    drain(sender)
    assert deliveries(database, job)[0]["state"] == "pending"
    with database.begin() as tx:
        assert tx.scalar(text("SELECT count(*) FROM webhook_endpoints")) == 0
        assert webhooks.record(tx, again, "delivered", 0.0, 204, None)


def test_several_keepers_at_once_deliver_each_once(
    database: Engine, reach: Settings, receiver: Receiver
) -> None:
    jobs = [cancelled(database, f"{receiver.url}/{n % 5}") for n in range(60)]
    stopping = threading.Event()
    with ExitStack() as stack:
        senders = [stack.enter_context(closing(patient_sender(reach))) for _ in range(3)]
        threads = [threading.Thread(target=run_service, args=(each, stopping)) for each in senders]
        for thread in threads:
            thread.start()
        eventually(lambda: len(receiver.received) >= len(jobs))
        stopping.set()
        for each, thread in zip(senders, threads, strict=True):
            each.wake.set()
            thread.join()
    assert len(receiver.received) == len({request.id for request in receiver.received}) == 60
    assert {deliveries(database, job)[0]["state"] for job in jobs} == {"delivered"}


def test_deliveries_at_once_create_one_tls_context(
    database: Engine, receiver: Receiver, sender: WebhookSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        cancelled(database, f"{receiver.url}/{n}")
    create, created = httpx.create_ssl_context, list[int]()
    in_flight = sender._in_flight  # noqa: SLF001 - all of them have begun

    def create_slowly() -> SSLContext:
        created.append(eventually(lambda: in_flight.total() == 5 and 5))
        return create()

    monkeypatch.setattr(httpx, "create_ssl_context", create_slowly)
    drain(sender)
    assert len(receiver.received) == 5
    assert created == [5]


def test_a_slow_endpoint_takes_some_of_the_places_and_the_others_are_served(
    database: Engine, receiver: Receiver, sender: WebhookSender
) -> None:
    for _ in range(30):
        cancelled(database, receiver.url + "/slow")
    quick = [cancelled(database, receiver.url + "/quick") for _ in range(5)]
    answering = threading.Event()
    receiver.reply = slow_reply(answering)
    eventually(
        lambda: (
            sender.run_once() >= 0
            and all(deliveries(database, job)[0]["state"] == "delivered" for job in quick)
        )
    )
    assert len(receiver.of("/hook/slow")) == AT_ONCE_EACH
    answering.set()
    drain(sender)
    assert len(receiver.of("/hook/slow")) == 30


def test_a_tenant_with_many_slow_endpoints_leaves_room_for_others(database: Engine) -> None:
    for n in range(2 * AT_ONCE):
        cancelled(database, f"https://{n}.example/")
    run_sql(database, "UPDATE webhook_deliveries SET tenant_id = 'slow', due_at = '2000-01-01'")
    cancelled(database, "https://another.example/")
    in_flight: Counter[webhooks.Endpoint] = Counter()
    for _ in range(3):  # and none of them ends
        most = {"most": AT_ONCE - in_flight.total(), "most_each": AT_ONCE_EACH}
        taken = transact(database, webhooks.claim, in_flight, **most, lease_s=60, patience_s=60)
        in_flight.update(delivery.endpoint for delivery in taken)
    by_tenant = Counter(tenant for tenant, _ in in_flight.elements())
    assert by_tenant["slow"] == AT_ONCE // 2
    assert by_tenant.total() == AT_ONCE // 2 + 1


def slow_reply(answering: threading.Event) -> Callable[[Received], Reply]:
    def reply(request: Received) -> Reply:
        if request.path.endswith("slow"):
            answering.wait(PATIENCE_S)
        return Reply(204)

    return reply


def test_a_rotated_secret_signs_for_a_day_more_beside_the_new_one(
    database: Engine, reach: Settings, receiver: Receiver, sender: WebhookSender
) -> None:
    [old] = signing_secrets(database, reach)
    new = transact(database, webhook_secret.rotate, reach.secret_key, TENANT)["secret"]
    cancelled(database, receiver.url)
    drain(sender)
    run_sql(
        database,
        "UPDATE webhook_secrets SET expires_at = expires_at - make_interval(secs => :s)",
        s=webhook_secret.OVERLAP_S,
    )
    cancelled(database, receiver.url)
    drain(sender)
    during, after = receiver.received
    assert [len(r.headers["webhook-signature"].split()) for r in (during, after)] == [2, 1]
    for secret, request in ((old, during), (new, during), (new, after)):
        Webhook(secret).verify(request.body, request.headers)


def test_rotating_twice_ends_the_secret_before_the_last(database: Engine, reach: Settings) -> None:
    with database.begin() as tx:
        made = [webhook_secret.rotate(tx, reach.secret_key, TENANT)["secret"] for _ in range(3)]
    assert signing_secrets(database, reach) == [made[2], made[1]]


def test_a_secret_is_made_and_shown_once_never_stored(database: Engine, reach: Settings) -> None:
    shown: list[str | None] = []

    def look() -> None:
        shown.append(transact(database, webhook_secret.show, reach.secret_key, TENANT)["secret"])

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    [secret] = [found for found in shown if found]
    assert signing_secrets(database, reach) == [secret]
    with database.connect() as tx:
        stored = tx.scalar(text("SELECT string_agg(s::text, '') FROM webhook_secrets s"))
        sealed = tx.scalars(text("SELECT sealed FROM webhook_secrets")).one()
    assert secret not in str(stored)
    assert secret.encode() not in bytes(sealed)


def test_a_secret_that_a_delivery_needed_first_is_still_shown_once(
    database: Engine, reach: Settings, receiver: Receiver, sender: WebhookSender
) -> None:
    cancelled(database, receiver.url)
    drain(sender)
    with database.begin() as tx:
        first, second = (
            webhook_secret.show(tx, reach.secret_key, TENANT)["secret"] for _ in range(2)
        )
    assert second is None
    Webhook(first).verify(receiver.received[0].body, receiver.received[0].headers)


def test_without_its_key_a_delivery_waits_and_the_endpoint_is_not_blamed(
    database: Engine, reach: Settings, receiver: Receiver
) -> None:
    signing_secrets(database, reach)
    job = cancelled(database, receiver.url)
    other = WebhookSender(reach.evolve(secret_key="another key, of 32 characters and more"))
    drain(other)
    other.close()
    [delivery] = deliveries(database, job)
    assert (delivery["state"], delivery["tries"]) == ("pending", 1)
    assert "MILLRACE_SECRET_KEY" in delivery["last_error"]
    assert scalar(database, "SELECT count(*) FROM webhook_endpoints") == 0
    assert receiver.received == []
