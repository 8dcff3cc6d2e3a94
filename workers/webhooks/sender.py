"""Sender of webhooks: claims deliveries that are due, sends several at once, records each attempt.

No transaction is open while a delivery is sent. A keeper that dies in between leaves a lease that
lapses: the delivery is sent again, under the same webhook-id.
"""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from ssl import SSLContext
from urllib.parse import urlsplit

from sqlalchemy import Engine as Database

from jobs import clock, ids
from jobs.errors import NotConfigured
from jobs.security.encryption import DecryptionError
from jobs.security.ssrf import AllowList
from jobs.settings import Settings
from jobs.store import db
from jobs.store.webhooks import deliveries as store
from jobs.store.webhooks import endpoints
from jobs.store.webhooks.deliveries import Delivery, Endpoint
from jobs.telemetry import logs
from jobs.telemetry.metrics import record
from jobs.telemetry.tracing import spans
from jobs.usecases import webhook_messages, webhook_secret
from workers.service import Service
from workers.webhooks import retry_policy
from workers.webhooks.post import TIMEOUT_S, Attempt, post
from workers.webhooks.retry_policy import Verdict

_log = logging.getLogger(__name__)

AT_ONCE = 16  # attempts in flight of one keeper
AT_ONCE_EACH = 4  # of those to one endpoint, so that a slow one leaves room
LEASE_S = 60.0  # longer than an attempt takes, name resolution included

_OUTCOMES = {
    "pending": "failed",
    "delivered": "delivered",
    "failed": "given_up",
    "disabled": "given_up",
}


class WebhookSender(Service):
    """Keeper service, with database connections of its own."""

    def __init__(
        self, settings: Settings, *, lease_s: float = LEASE_S, timeout_s: float = TIMEOUT_S
    ) -> None:
        super().__init__("webhooks", settings.keeper_interval_s)
        self._settings, self._lease_s, self._timeout_s = settings, lease_s, timeout_s
        self._database: Database = db.connect(settings.database_url, pool_size=2, role=db.WORKER)
        self._allow = AllowList.parse(settings.webhook_allow)
        self._pool = ThreadPoolExecutor(AT_ONCE, "webhook")
        self._in_flight: Counter[Endpoint] = Counter()
        self._counting = threading.Lock()
        self._tls_context: SSLContext | None = None
        self._creating_tls = threading.Lock()

    def _tls(self) -> SSLContext:
        """TLS context with the public CAs: 5 MB, created once, for the first delivery."""
        import httpx

        with self._creating_tls:
            self._tls_context = self._tls_context or httpx.create_ssl_context()
            return self._tls_context

    def close(self) -> None:
        """Waits for the deliveries in flight."""
        self._pool.shutdown()
        self._database.dispose()

    def run_once(self) -> int:
        """Begins deliveries that are due; returns how many. Raises database errors."""
        with self._counting:
            in_flight = Counter(self._in_flight)
        room = AT_ONCE - in_flight.total()
        if room <= 0:
            return 0
        with self._database.begin() as tx:
            taken = store.claim(
                tx, in_flight, most=room, most_each=AT_ONCE_EACH, lease_s=self._lease_s,
                patience_s=retry_policy.HELD_BACK_S,
            )  # fmt: skip
        for delivery in taken:
            with self._counting:
                self._in_flight[delivery.endpoint] += 1
            self._pool.submit(self._deliver, delivery)
        return len(taken)

    def _deliver(self, delivery: Delivery) -> None:
        """Makes one attempt and records it."""
        about, since_s = _about(delivery), clock.monotonic()
        try:
            with logs.bound_fields(**about):
                attempt, sent = self._attempt(delivery, about)
                took_s = clock.monotonic() - since_s
                if attempt.error is not None:
                    why = attempt.cause or attempt.error
                    _log.warning("try %d of a webhook: %s", delivery.tries, why)
                verdict = self._record(delivery, attempt, sent)
                record.webhook_tried(_OUTCOMES[verdict.state], took_s)
        except Exception as error:  # the pool would drop it silently
            with logs.bound_fields(**about):
                _log.warning("it is sent again: %s", error)
        finally:
            with self._counting:
                self._in_flight[delivery.endpoint] -= 1
            self.wake.set()

    def _attempt(self, delivery: Delivery, about: Mapping[str, str]) -> tuple[Attempt, bool]:
        """Returns the result, and True if a request was sent."""
        try:
            headers, body = self._message(delivery)
        except db.CONNECTION_ERRORS:
            raise
        except (NotConfigured, DecryptionError) as error:
            return Attempt(error=str(error)), False
        except Exception:  # such a delivery uses up its tries like any other
            _log.exception("a webhook can't be built")
            return Attempt(error="this is our fault; the log has it"), False
        with spans.span_in_trace(delivery.traceparent, "POST", "client") as span:
            if span.context:
                headers |= span.context.headers
            attempt = post(
                delivery.url, headers, body, allow=self._allow, tls=self._tls(),
                timeout_s=self._timeout_s,
            )  # fmt: skip
            span.set_attributes(
                http__request__method="POST",
                http__request__resend_count=delivery.tries - 1,
                http__response__status_code=attempt.status,
                server__address=urlsplit(delivery.url).hostname,
                millrace__webhook__type=delivery.type,
                **{f"millrace__{name.replace('_id', '__id')}": v for name, v in about.items()},
            )
            if attempt.error is not None:
                span.error = str(attempt.status or "no_answer")
        return attempt, True

    def _message(self, delivery: Delivery) -> tuple[dict[str, str], bytes]:
        with self._database.begin() as tx:
            keys = webhook_secret.signing_secrets(tx, self._settings.secret_key, delivery.tenant)
        body = webhook_messages.body(delivery.type, delivery.about, delivery.id)
        id = ids.show(webhook_messages.ID_PREFIX, delivery.id)
        return webhook_messages.headers(id, int(clock.now().timestamp()), body, keys), body

    def _record(self, delivery: Delivery, attempt: Attempt, sent: bool) -> Verdict:
        verdict = retry_policy.verdict(attempt, delivery.tries)
        with self._database.begin() as tx:
            ours = store.record(
                tx, delivery, verdict.state, verdict.wait_s, attempt.status, attempt.error
            )
            if ours and verdict.state == "delivered":
                endpoints.close_breaker(tx, delivery.endpoint)
            elif ours and sent:
                endpoints.record_failure(
                    tx,
                    delivery.endpoint,
                    gone=verdict.state == "disabled",
                    threshold=retry_policy.BREAKER_THRESHOLD,
                    first_s=retry_policy.BREAKER_FIRST_S,
                    most_s=retry_policy.BREAKER_MOST_S,
                )
        return verdict


def _about(delivery: Delivery) -> dict[str, str]:
    """Fields for lines of the log."""
    about = {
        "webhook_id": ids.show(webhook_messages.ID_PREFIX, delivery.id),
        "tenant": delivery.tenant,
    }
    return about | ({"job_id": ids.show("job", delivery.job)} if delivery.job else {})
