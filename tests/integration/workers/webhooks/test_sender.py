"""Deliveries from the end of a job to their own end, with real endpoints and several keepers."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict
from ssl import SSLContext
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import httpx
import orjson
import pytest
from sqlalchemy import Engine
from standardwebhooks import Webhook

from jobs import ids
from jobs.models.builtin_models import SAMPLES
from jobs.settings import Settings
from jobs.store.jobs import read, verbs
from jobs.store.webhooks import deliveries as webhooks
from jobs.store.webhooks import endpoints
from jobs.usecases import webhook_secret
from jobs.usecases.submit import Order, submit
from jobs.views import jobs as views
from tests.support.servers.receiver import Received, Receiver, Reply, receiving
from tests.support.stores import store
from tests.support.stores.transactions import execute, fetch, scalar, transact
from tests.support.wait import PATIENCE_S, eventually
from workers.keeper.service import run_service
from workers.webhooks import retry_policy
from workers.webhooks import sender as senders
from workers.webhooks.sender import AT_ONCE, AT_ONCE_EACH, WebhookSender

TENANT = "default"


def patient_sender(settings: Settings) -> WebhookSender:
    """Sender whose deliveries end by an answer alone, however busy the machine is."""
    return WebhookSender(settings, lease_s=2 * PATIENCE_S, timeout_s=PATIENCE_S)


class Stage:
    """Jobs with webhooks, a sender, and the endpoint that it sends to."""

    def __init__(self, database: Engine, settings: Settings, receiver: Receiver) -> None:
        self.database, self.receiver = database, receiver
        self.settings = settings.evolve(webhook_allow="127.0.0.1", keeper_interval_s=0.02)
        self.sender = patient_sender(self.settings)

    def post(self, *items: object, url: str | None = "") -> UUID:
        """A job whose end is told to the receiver, or to a URL, or to nobody."""
        order = Order("echo", webhook_url=self.receiver.url if url == "" else url)
        return UUID(str(submit(self.database, SAMPLES, TENANT, order, array=items or ["x"]).id))

    def cancelled(self, url: str | None = "") -> UUID:
        job = self.post(url=url)
        transact(self.database, verbs.cancel, job)
        return job

    def cancelled_at(self, path: str) -> UUID:
        return self.cancelled(self.receiver.url + path)

    def complete(self) -> None:
        """Runs everything that is claimable."""
        store.settle(self.database, store.claim(self.database))

    def drain(self, sender: WebhookSender | None = None) -> None:
        """Until nothing is due and nothing in flight."""
        sender = sender or self.sender
        in_flight = sender._in_flight  # noqa: SLF001 - those under way have no other trace
        eventually(lambda: not in_flight.total() and not sender.run_once())

    def execute(self, statement: str, **values: object) -> None:
        execute(self.database, statement, values)

    def make_due(self) -> None:
        """As if the time until the next try had passed."""
        self.execute("UPDATE webhook_deliveries SET due_at = now() WHERE state = 'pending'")

    def deliveries(self, job: UUID) -> list[dict[str, Any]]:
        return [asdict(row) for row in transact(self.database, webhooks.of_job, TENANT, job)]

    def states(self, *jobs: UUID) -> list[str]:
        """States of the last deliveries of jobs."""
        return [self.deliveries(job)[0]["state"] for job in jobs]

    def endpoints(self) -> int:
        """Endpoints of which something is noted."""
        return int(scalar(self.database, "SELECT count(*) FROM webhook_endpoints"))

    def open_breaker(self, open_s: float) -> None:
        terms = {"gone": False, "threshold": 1, "first_s": open_s, "most_s": open_s}
        endpoint = (TENANT, self.receiver.url)
        transact(self.database, endpoints.record_failure, endpoint, **terms)

    def open_s(self) -> float:
        """Time for which the breaker is open."""
        left = "SELECT extract(epoch FROM open_until - now()) FROM webhook_endpoints"
        return float(scalar(self.database, left))

    def half_open(self) -> None:
        self.execute("UPDATE webhook_endpoints SET open_until = now()")
        self.make_due()

    @property
    def received(self) -> list[Received]:
        return self.receiver.received

    def hold_answers(self, status: int, path: str = "") -> threading.Event:
        """Answers on paths with this end wait for the event that it returns."""
        answering = threading.Event()

        def reply(request: Received) -> Reply:
            held = request.path.endswith(path)
            return Reply(500 if held and not answering.wait(PATIENCE_S) else status)

        self.receiver.reply = reply
        return answering

    def secrets(self, act: Callable[..., Any]) -> Any:
        """Result of an act on the secrets of the tenant."""
        return transact(self.database, act, self.settings.secret_key, TENANT)

    def signing_secrets(self) -> list[str]:
        return list(self.secrets(webhook_secret.signing_secrets))

    def shown_secret(self) -> Any:
        return self.secrets(webhook_secret.show)["secret"]

    def rotated_secret(self) -> str:
        return str(self.secrets(webhook_secret.rotate)["secret"])


@pytest.fixture
def stage(database: Engine, settings: Settings) -> Iterator[Stage]:
    with receiving() as receiver:
        made = Stage(database, settings, receiver)
        yield made
        made.sender.close()


def test_what_is_sent_is_the_job_as_it_ended_and_the_reference_package_verifies_it(
    stage: Stage,
) -> None:
    job = stage.post("a", {"custom_id": 'é\\"', "input": None})
    stage.complete()
    stage.drain()
    [request] = stage.received
    [secret] = stage.signing_secrets()
    message = Webhook(secret).verify(request.body, request.headers)
    row = transact(stage.database, read.one, TENANT, job)
    shown = orjson.loads(orjson.dumps(views.job_object(row)))
    ended = {"type": "job.completed", "timestamp": shown["finished_at"]}
    assert message == {**ended, "data": shown}
    [delivery] = stage.deliveries(job)
    assert request.id == ids.show("msg", delivery["id"])
    assert request.headers["content-type"] == "application/json"
    assert (delivery["state"], delivery["tries"], delivery["last_status"]) == ("delivered", 1, 204)


def test_each_way_to_end_writes_one_delivery_of_its_type_with_the_end(stage: Stage) -> None:
    completed, cancelled, expired, another = (stage.post() for _ in range(4))
    transact(stage.database, verbs.cancel, cancelled)
    transact(stage.database, verbs.expire, expired)
    with stage.database.connect() as tx:
        verbs.cancel(tx, another)
        assert len(webhooks.of_job(tx, TENANT, another)) == 1
        tx.rollback()
    assert stage.deliveries(another) == []
    stage.complete()
    for job, kind in (
        (completed, "completed"), (cancelled, "cancelled"), (expired, "expired"),
        (another, "completed"),
    ):  # fmt: skip
        assert [row["type"] for row in stage.deliveries(job)] == [f"job.{kind}"]
    assert stage.deliveries(stage.cancelled(None)) == []


def test_an_end_after_a_retry_is_told_under_an_id_of_its_own(stage: Stage) -> None:
    job = stage.cancelled()
    transact(stage.database, verbs.retry, job)
    stage.complete()
    stage.drain()
    told = [orjson.loads(r.body)["data"]["generation"] for r in stage.received]
    assert sorted(told) == [1, 2]  # both are due: they are sent side by side
    assert len({request.id for request in stage.received}) == 2
    assert [row["generation"] for row in stage.deliveries(job)] == [2, 1]


def test_failures_are_tried_eight_times_under_one_id_and_then_no_more(stage: Stage) -> None:
    stage.receiver.reply = lambda _: Reply(500)
    job = stage.cancelled()
    for tries in range(1, retry_policy.TRIES + 1):
        stage.drain()
        [delivery] = stage.deliveries(job)
        assert (delivery["tries"], len(stage.received)) == (tries, tries)
        stage.make_due()
    assert (delivery["state"], delivery["last_error"]) == ("failed", "answered 500")
    assert len({request.id for request in stage.received}) == 1
    assert len({request.body for request in stage.received}) == 1
    stage.drain()
    assert len(stage.received) == retry_policy.TRIES


def test_retry_after_is_heeded(stage: Stage) -> None:
    stage.receiver.reply = lambda _: Reply(429, {"Retry-After": "3600"})
    job = stage.cancelled()
    stage.drain()
    [delivery] = stage.deliveries(job)
    assert 3590 < (delivery["due_at"] - delivery["created_at"]).total_seconds() < 3700


def test_410_disables_the_endpoint_until_a_redelivery_asks_for_it(stage: Stage) -> None:
    stage.receiver.reply = lambda _: Reply(410)
    first = stage.cancelled()
    stage.drain()
    second = stage.cancelled()
    elsewhere = stage.cancelled_at("/else")
    stage.receiver.reply = lambda _: Reply(204)
    stage.drain()
    assert stage.states(first, second, elsewhere) == ["disabled", "disabled", "delivered"]
    assert len(stage.receiver.of("/hook")) == 1
    with stage.database.begin() as tx:
        again = webhooks.redeliver(tx, TENANT, second)
        assert again is not None
        endpoints.close_breaker(tx, (TENANT, stage.receiver.url))
    stage.drain()
    assert stage.states(second) == ["delivered"]
    assert stage.receiver.of("/hook")[1].id == ids.show("msg", again.id)


def test_a_breaker_opens_after_failures_in_a_row_and_one_probe_closes_it(stage: Stage) -> None:
    stage.receiver.reply = lambda _: Reply(503)
    failing = [stage.cancelled() for _ in range(retry_policy.BREAKER_THRESHOLD)]
    stage.drain()
    assert len(stage.received) == retry_policy.BREAKER_THRESHOLD
    assert 0 < stage.open_s() <= retry_policy.BREAKER_FIRST_S
    stage.make_due()
    stage.drain()  # it is open: they wait, at no cost
    assert len(stage.received) == retry_policy.BREAKER_THRESHOLD
    assert {stage.deliveries(job)[0]["tries"] for job in failing} == {1}

    stage.half_open()
    stage.drain()  # one probe; it fails, and the breaker is open for twice as long
    assert len(stage.received) == retry_policy.BREAKER_THRESHOLD + 1
    assert stage.open_s() > retry_policy.BREAKER_FIRST_S

    stage.receiver.reply = lambda _: Reply(204)
    stage.half_open()
    stage.drain()  # one probe; it succeeds, and the others follow when they are due
    assert len(stage.received) >= retry_policy.BREAKER_THRESHOLD + 2
    stage.make_due()
    stage.drain()
    assert set(stage.states(*failing)) == {"delivered"}


def test_while_a_probe_is_out_no_keeper_sends_another(stage: Stage) -> None:
    for _ in range(5):
        stage.cancelled()
    stage.open_breaker(0.0)
    answering = stage.hold_answers(204)
    other = patient_sender(stage.settings)
    assert (stage.sender.run_once(), other.run_once(), stage.sender.run_once()) == (1, 0, 0)
    answering.set()
    stage.drain()
    stage.make_due()
    stage.drain(other)
    other.close()
    assert len(stage.received) == 5


def test_what_a_breaker_held_back_for_too_long_has_failed(stage: Stage) -> None:
    job = stage.cancelled()
    stage.open_breaker(60.0)
    stage.execute("UPDATE webhook_deliveries SET requested_at = now() - interval '4 days'")
    stage.drain()
    assert stage.states(job) == ["failed"]
    assert stage.received == []


def test_a_keeper_that_dies_between_sending_and_recording_sends_nothing_less(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = stage.cancelled()
    dying = WebhookSender(stage.settings, lease_s=0.3)
    with monkeypatch.context() as patched:
        patched.setattr(senders.store, "record", Mock(side_effect=RuntimeError("killed")))
        assert dying.run_once() == 1
        dying.close()
    assert stage.states(job) == ["pending"]
    heir = patient_sender(stage.settings)
    eventually(heir.run_once)
    heir.close()
    assert len(stage.received) == 2
    assert len({request.id for request in stage.received}) == 1
    assert stage.states(job) == ["delivered"]


def test_a_sender_whose_lease_lapsed_records_nothing(stage: Stage) -> None:
    job = stage.cancelled()
    answering = stage.hold_answers(410)
    assert stage.sender.run_once() == 1
    eventually(lambda: stage.received)
    stage.execute("UPDATE webhook_deliveries SET tries = tries + 1")  # another one claimed it
    answering.set()
    stage.drain()
    assert stage.states(job) == ["pending"]
    assert stage.endpoints() == 0


def test_a_try_from_before_a_redelivery_records_nothing(stage: Stage) -> None:
    job = stage.cancelled()
    answering = stage.hold_answers(410)
    assert stage.sender.run_once() == 1
    eventually(lambda: stage.received)
    transact(stage.database, webhooks.redeliver, TENANT, job)
    with stage.database.begin() as tx:  # the first try of the redelivery, by another keeper
        [again] = webhooks.claim(tx, {}, most=1, most_each=1, lease_s=60, patience_s=60)
    assert again.tries == 1
    answering.set()
    stage.drain()
    assert stage.states(job) == ["pending"]
    assert stage.endpoints() == 0
    assert transact(stage.database, webhooks.record, again, "delivered", 0.0, 204, None)


def test_several_keepers_at_once_deliver_each_once(stage: Stage) -> None:
    jobs, stopping = [stage.cancelled_at(f"/{n % 5}") for n in range(60)], threading.Event()
    with ExitStack() as stack:
        senders = [stack.enter_context(closing(patient_sender(stage.settings))) for _ in range(3)]
        threads = [threading.Thread(target=run_service, args=(each, stopping)) for each in senders]
        for thread in threads:
            thread.start()
        eventually(lambda: len(stage.received) >= len(jobs))
        stopping.set()
        for each, thread in zip(senders, threads, strict=True):
            each.wake.set()
            thread.join()
    assert len(stage.received) == len({request.id for request in stage.received}) == 60
    assert set(stage.states(*jobs)) == {"delivered"}


def test_deliveries_at_once_create_one_tls_context(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        stage.cancelled_at(f"/{n}")
    create, created = httpx.create_ssl_context, list[int]()
    in_flight = stage.sender._in_flight  # noqa: SLF001 - all of them have begun

    def create_slowly() -> SSLContext:
        created.append(eventually(lambda: in_flight.total() == 5 and 5))
        return create()

    monkeypatch.setattr(httpx, "create_ssl_context", create_slowly)
    stage.drain()
    assert len(stage.received) == 5
    assert created == [5]


def test_a_slow_endpoint_takes_some_of_the_places_and_the_others_are_served(stage: Stage) -> None:
    for _ in range(30):
        stage.cancelled_at("/slow")
    quick = [stage.cancelled_at("/quick") for _ in range(5)]
    answering = stage.hold_answers(204, "slow")

    def served() -> bool:
        stage.sender.run_once()
        return set(stage.states(*quick)) == {"delivered"}

    eventually(served)
    eventually(lambda: len(stage.receiver.of("/hook/slow")) >= AT_ONCE_EACH)
    assert stage.sender.run_once() == 0
    assert len(stage.receiver.of("/hook/slow")) == AT_ONCE_EACH
    answering.set()
    stage.drain()
    assert len(stage.receiver.of("/hook/slow")) == 30


def test_a_tenant_with_many_slow_endpoints_leaves_room_for_others(stage: Stage) -> None:
    for n in range(2 * AT_ONCE):
        stage.cancelled(f"https://{n}.example/")
    stage.execute("UPDATE webhook_deliveries SET tenant_id = 'slow', due_at = '2000-01-01'")
    stage.cancelled("https://another.example/")
    in_flight: Counter[webhooks.Endpoint] = Counter()
    for _ in range(3):  # and none of them ends
        most = {"most": AT_ONCE - in_flight.total(), "most_each": AT_ONCE_EACH}
        terms = {**most, "lease_s": 60, "patience_s": 60}
        taken = transact(stage.database, webhooks.claim, in_flight, **terms)
        in_flight.update(delivery.endpoint for delivery in taken)
    by_tenant = Counter(tenant for tenant, _ in in_flight.elements())
    assert by_tenant["slow"] == AT_ONCE // 2
    assert by_tenant.total() == AT_ONCE // 2 + 1


def test_a_rotated_secret_signs_for_a_day_more_beside_the_new_one(stage: Stage) -> None:
    [old] = stage.signing_secrets()
    new = stage.rotated_secret()
    stage.cancelled()
    stage.drain()
    stage.execute(
        "UPDATE webhook_secrets SET expires_at = expires_at - make_interval(secs => :s)",
        s=webhook_secret.OVERLAP_S,
    )
    stage.cancelled()
    stage.drain()
    during, after = stage.received
    assert [len(r.headers["webhook-signature"].split()) for r in (during, after)] == [2, 1]
    for secret, request in ((old, during), (new, during), (new, after)):
        Webhook(secret).verify(request.body, request.headers)


def test_three_secrets_sign_at_most(stage: Stage) -> None:
    made = [stage.rotated_secret() for _ in range(5)]
    assert stage.signing_secrets() == [made[4], made[3], made[2]]


def test_a_secret_is_made_and_shown_once_never_stored(stage: Stage) -> None:
    with ThreadPoolExecutor(4) as threads:
        shown = list(threads.map(lambda _: stage.shown_secret(), range(4)))
    [secret] = filter(None, shown)
    assert stage.signing_secrets() == [secret]
    [(stored, sealed)] = fetch(stage.database, "SELECT s::text, sealed FROM webhook_secrets s")
    assert secret not in stored
    assert secret.encode() not in bytes(sealed)


def test_a_secret_that_a_delivery_needed_first_is_still_shown_once(stage: Stage) -> None:
    stage.cancelled()
    stage.drain()
    first, second = stage.shown_secret(), stage.shown_secret()
    assert second is None
    Webhook(first).verify(stage.received[0].body, stage.received[0].headers)


def test_without_its_key_a_delivery_waits_and_the_endpoint_is_not_blamed(stage: Stage) -> None:
    stage.signing_secrets()
    job = stage.cancelled()
    other = WebhookSender(
        stage.settings.evolve(secret_key="another key, of 32 characters and more")
    )
    stage.drain(other)
    other.close()
    [delivery] = stage.deliveries(job)
    assert (delivery["state"], delivery["tries"]) == ("pending", 1)
    assert "MILLRACE_SECRET_KEY" in delivery["last_error"]
    assert stage.endpoints() == 0
    assert stage.received == []
