"""Claims deliveries that are due, sends several at once, records how each try ended.

No transaction is open while something is sent. A keeper that dies in between leaves a lease that
lapses: the delivery is sent again, under the same webhook-id.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import httpx
import psycopg
from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs import clock, ids
from jobs.encryption import Unsealable
from jobs.errors import NotConfigured
from jobs.settings import Settings
from jobs.ssrf import AllowList
from jobs.store import db
from jobs.store.webhooks import deliveries as store
from jobs.store.webhooks import endpoints
from jobs.store.webhooks.deliveries import Delivery, Endpoint
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from jobs.telemetry.tracing import spans
from jobs.usecases import webhook_messages, webhook_secret
from workers.http_client.post import TIMEOUT_S, WebhookResponse, post
from workers.webhooks import retry_policy
from workers.webhooks.retry_policy import Verdict

_log = logging.getLogger(__name__)

AT_ONCE = 16
AT_ONCE_EACH = 4
"""Tries in flight of one keeper, and of those to one endpoint: a slow one leaves room."""
LEASE_S = 60.0
"""Longer than a try takes, resolving its name included; after a keeper's death others wait so
long."""

_OUTCOMES = {
    "pending": "failed",
    "delivered": "delivered",
    "failed": "given_up",
    "disabled": "given_up",
}


class WebhookSender:
    """With connections of its own: what waits for endpoints takes none from who reaps."""

    def __init__(
        self, settings: Settings, *, lease_s: float = LEASE_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._settings, self._lease_s, self._timeout_s = settings, lease_s, timeout_s
        self._database: Database = db.connect(settings.database_url, pool_size=2, role=db.WORKER)
        self._allow = AllowList.parse(settings.webhook_allow)
        self._tls = httpx.create_ssl_context()
        self._pool = ThreadPoolExecutor(AT_ONCE, "webhook")
        self._in_flight: Counter[Endpoint] = Counter()
        self._counting = threading.Lock()
        self._woken = threading.Event()

    def run(self, stopping: threading.Event) -> None:
        """Sends until it is told to stop, and what it has begun to its end."""
        while not stopping.is_set():
            self._woken.clear()
            try:
                if self.run_once():
                    continue
            except (SQLAlchemyError, psycopg.Error) as error:
                _log.warning("webhooks: %s", error)
            self._woken.wait(self._settings.keeper_interval_s)
        self.close()

    def close(self) -> None:
        """Waits for what is in flight."""
        self._pool.shutdown()
        self._database.dispose()

    def run_once(self) -> int:
        """Hands what is due to the threads; returns the number of tries begun."""
        with self._counting:
            in_flight = Counter(self._in_flight)
        room = AT_ONCE - in_flight.total()
        if room <= 0:
            return 0
        with self._database.begin() as tx:
            taken = store.claim(
                tx, in_flight, most=room, most_each=AT_ONCE_EACH, lease_s=self._lease_s,
                patience_s=retry_policy.PATIENCE_S,
            )  # fmt: skip
        for delivery in taken:
            with self._counting:
                self._in_flight[delivery.endpoint] += 1
            self._pool.submit(self._deliver, delivery)
        return len(taken)

    def _deliver(self, delivery: Delivery) -> None:
        """One try, from its secret to its record."""
        about, since_s = _about(delivery), clock.monotonic()
        try:
            with logs.about(**about):
                answer, asked = self._try(delivery, about)
                took_s = clock.monotonic() - since_s
                if answer.error is not None:
                    _log.warning("try %d of a webhook: %s", delivery.tries, answer.error)
                found = self._record(delivery, answer, asked)
                record.webhook_tried(_OUTCOMES[found.state], took_s)
        except Exception as error:  # a thread of a pool would keep it to itself
            with logs.about(**about):
                _log.warning("it is sent again: %s", error)
        finally:
            with self._counting:
                self._in_flight[delivery.endpoint] -= 1
            self._woken.set()

    def _try(self, delivery: Delivery, about: Mapping[str, str]) -> tuple[WebhookResponse, bool]:
        """How it ended, and whether the endpoint was asked at all."""
        try:
            headers, body = self._message(delivery)
        except db.CONNECTION_ERRORS:
            raise
        except (NotConfigured, Unsealable) as error:
            return WebhookResponse(error=str(error)), False
        except Exception:  # a message that can't be built uses up its tries like any other
            _log.exception("a webhook can't be built")
            return WebhookResponse(error="this is our fault; the log has it"), False
        with spans.part_of(delivery.traceparent, "POST", "client") as span:
            if span.context:
                headers |= span.context.headers
            answer = post(
                delivery.url, headers, body, allow=self._allow, tls=self._tls,
                timeout_s=self._timeout_s,
            )  # fmt: skip
            span.note(
                http__request__method="POST",
                http__request__resend_count=delivery.tries - 1,
                http__response__status_code=answer.status,
                server__address=urlsplit(delivery.url).hostname,
                millrace__webhook__type=delivery.type,
                **{f"millrace__{name.replace('_id', '__id')}": v for name, v in about.items()},
            )
            if answer.error is not None:
                span.error = str(answer.status or "no_answer")
        return answer, True

    def _message(self, delivery: Delivery) -> tuple[dict[str, str], bytes]:
        with self._database.begin() as tx:
            keys = webhook_secret.signing_secrets(tx, self._settings.secret_key, delivery.tenant)
        body = webhook_messages.body(delivery.type, delivery.about, delivery.id)
        id = ids.show(webhook_messages.ID_PREFIX, delivery.id)
        return webhook_messages.headers(id, int(clock.now().timestamp()), body, keys), body

    def _record(self, delivery: Delivery, answer: WebhookResponse, asked: bool) -> Verdict:
        found = retry_policy.verdict(answer, delivery.tries)
        with self._database.begin() as tx:
            ours = store.record(
                tx, delivery, found.state, found.wait_s, answer.status, answer.error
            )
            if ours and found.state == "delivered":
                endpoints.close_breaker(tx, delivery.endpoint)
            elif ours and asked:
                endpoints.record_failure(
                    tx,
                    delivery.endpoint,
                    gone=found.state == "disabled",
                    threshold=retry_policy.BREAKER_THRESHOLD,
                    first_s=retry_policy.BREAKER_FIRST_S,
                    most_s=retry_policy.BREAKER_MOST_S,
                )
        return found


def _about(delivery: Delivery) -> dict[str, str]:
    """For lines of the log."""
    about = {
        "webhook_id": ids.show(webhook_messages.ID_PREFIX, delivery.id),
        "tenant": delivery.tenant,
    }
    return about | ({"job_id": ids.show("job", delivery.job)} if delivery.job else {})
