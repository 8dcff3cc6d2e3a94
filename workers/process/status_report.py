"""How a worker stands, for its reports: what it is, its models, what they are doing now. Gauges are
set on the way, so that whoever reads metrics sees what is reported."""

import os
import socket
from collections.abc import Iterable
from typing import Any, get_args

from jobs import clock
from jobs.settings import Settings
from jobs.store import db
from jobs.store.queue.workers import ModelRow, ModelState
from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.gauge_table import GaugeTable
from workers.device.host_table import HostTable
from workers.device.model_host import ModelHost
from workers.device.monitoring import device_info
from workers.process.model_loader import ModelLoader
from workers.process.slice_runner import SliceRunner

_MIB = 1 << 20
_STATES: tuple[ModelState, ...] = get_args(ModelState)


class StatusReporter:
    def __init__(
        self, settings: Settings, hosts: HostTable, residents: ModelLoader, slices: SliceRunner
    ) -> None:
        self._settings, self._hosts = settings, hosts
        self._residents, self._slices = residents, slices
        self._device = device_info.name_of(settings)
        self._states, self._memory = (
            GaugeTable(metrics.MODEL_STATE),
            GaugeTable(metrics.MODEL_MEMORY),
        )
        self._slots, self._lanes = (
            GaugeTable(metrics.REPLICA_SLOTS),
            GaugeTable(metrics.LANES_WAITING),
        )
        self._in_hand = GaugeTable(metrics.IN_HAND)

    def about(self) -> dict[str, Any]:
        """See Report.about."""
        self._hosts.busy.count()
        db.record_connections()
        memory = dict(zip(("used", "total"), device_info.memory(self._device), strict=True))
        for kind, size in memory.items():
            metrics.DEVICE_MEMORY.labels(self._device, kind).set(size)
        rows, hosts = self._residents.rows(), dict(self._hosts.by_key)
        self._set_models(rows, hosts)
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pool": self._settings.pool,
            "device": self._device,
            "memory": memory,
            "state": self._slices.state,
            "models": {row.model: _model(row, hosts.get(row.model)) for row in rows},
        }

    def _set_models(self, rows: Iterable[ModelRow], hosts: dict[str, ModelHost]) -> None:
        in_hand = self._slices.in_hand()
        here = [(row, hosts.get(row.model)) for row in rows]
        self._states.set(
            {(row.model, state): row.state == state for row, _ in here for state in _STATES}
        )
        self._memory.set({(row.model,): row.memory_mb * _MIB for row, _ in here})
        self._slots.set({(row.model,): _slots(host) for row, host in here})
        self._lanes.set(
            {(row.model,): host.scheduler.lanes_seen if host else 0 for row, host in here}
        )
        self._in_hand.set({(row.model,): in_hand[row.model] for row, _ in here})


def _slots(host: ModelHost | None) -> int:
    """One that drains starts no launch."""
    return host.slots() if host and not host.draining else 0


def _model(row: ModelRow, host: ModelHost | None) -> dict[str, Any]:
    """launches: those it is in now, since: Unix time by this machine's clock; profile: by bucket,
    the curve of its launches."""
    found: dict[str, Any] = {
        "state": row.state,
        "memory_mb": row.memory_mb,
        "load_ms": row.load_ms,
        "error": row.error,
        "launches": [],
        "profile": {},
    }
    if host is None:
        return found
    now_s, unix_s = clock.monotonic(), clock.now().timestamp()
    found["launches"] = [
        {
            "since": unix_s - (now_s - launch.started_s),
            "rows": len(launch.entries),
            "calls": len(launch.calls),
            "items": len(launch.items),
            "predicted_ms": launch.predicted_s * 1000,
        }
        for launch in host.launches()
    ]
    profile = host.profile()
    found["profile"] = {
        str(bucket): {
            "full_rows": times.full_rows, "full_ms": times.full_ms, "one_ms": times.one_ms,
        }
        for bucket, times in profile.buckets.items()
    }  # fmt: skip
    found["slots"] = host.slots()
    return found
