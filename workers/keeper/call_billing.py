"""Billing of calls: minutes that are over move from Redis to the ledger.

A minute is stored first and deleted from Redis then. A keeper that dies in between, or comes
second, stores it again: the ledger keeps the first.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from itertools import groupby

from sqlalchemy import Engine as Database

from jobs.calls import redis as call_redis
from jobs.calls.accounting import usage_fields
from jobs.calls.accounting.settlement import settle_quotas
from jobs.calls.clients.cluster import LanesCluster
from jobs.calls.lanes import CallLanes
from jobs.calls.messages import CallUsage
from jobs.models.adapters import adapted_key
from jobs.models.model import Model
from jobs.models.pricing import FREE
from jobs.models.watcher import ModelsFile
from jobs.store.billing import ledger
from jobs.store.billing.ledger import Minute
from jobs.telemetry.metrics import record
from workers.service import Service

_INTERVAL_S = 5.0


class CallBilling(Service):
    """Keeper service for the calls of every model, also of those declared no more."""

    def __init__(
        self,
        redis_url: str,
        database: Database,
        file: ModelsFile,
        lanes: Callable[[str], CallLanes] | None = None,
    ) -> None:
        super().__init__("bill calls", _INTERVAL_S)
        self._client, self._database, self._file = call_redis.connect(redis_url), database, file
        self._new = lanes or (lambda key: call_redis.RedisLanes(self._client, key))
        self._lanes: dict[str, CallLanes] = {}
        self._known: dict[str, Model] = {}
        self._scanned = False

    def run_once(self) -> int:
        """Returns how many rows it moved. Raises RedisError and database errors."""
        with record.keeper_run(self.name):
            if not self._scanned:  # for models that were declared before this keeper started
                self._lanes |= {
                    key: self._new(key) for key in usage_fields.with_usage(self._client)
                }
                self._scanned = True
            models = self._file.models
            self._known |= {model.key: model for model in models.with_adapters(models)}
            for model in models:
                if model.key not in self._lanes:
                    self._lanes[model.key] = self._new(model.key)
            if isinstance(self._client, LanesCluster):
                settle_quotas(self._client, self._lanes)
            return sum(self._move(key, lanes) for key, lanes in self._lanes.items())

    def _move(self, key: str, lanes: CallLanes) -> int:
        used = lanes.usage()
        if used:
            with self._database.begin() as tx:
                for adapter, its in groupby(sorted(used, key=_adapter), key=_adapter):
                    name = adapted_key(key, adapter) if adapter else key
                    model = self._known.get(name)
                    price = model.price if model else FREE
                    ledger.bill_calls(tx, [_minute(name, one) for one in its], price)
            lanes.forget_usage(used)
        return len(used)


def _adapter(used: CallUsage) -> str:
    return used.adapter


def _minute(key: str, used: CallUsage) -> Minute:
    name, _, version = key.rpartition("@")
    at = datetime.fromtimestamp(used.minute * 60, UTC)
    counts = used.succeeded, used.failed, used.units, used.device_us
    tokens = used.input_tokens, used.cached_tokens, used.output_tokens
    return Minute(at, used.tenant, name, version, used.job_class, *counts, *tokens)
