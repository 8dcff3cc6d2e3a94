"""Status of a worker for its reports to Redis, and the gauges of its metrics: its device, its
models, their launches in flight."""

import os
import socket
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, get_args

from jobs import clock
from jobs.settings import Settings
from jobs.store import db
from jobs.store.queue.workers import ModelRow, ModelState
from jobs.telemetry import gpu_reading
from jobs.telemetry.gpu_reading import GpuReading
from jobs.telemetry.metrics import metrics
from jobs.telemetry.metrics.gpu import GpuMetrics
from jobs.telemetry.metrics.labels import GaugeTable
from workers.device.host import Host
from workers.device.monitoring import device_info
from workers.device.monitoring.gpu_sensors import GpuSensors
from workers.process.host_table import HostTable
from workers.process.model_loader import ModelLoader
from workers.process.slice_runner import SliceRunner

_MIB = 1 << 20
_STATES: tuple[ModelState, ...] = get_args(ModelState)


class StatusReporter:
    """Describes one worker."""

    def __init__(
        self, settings: Settings, hosts: HostTable, loader: ModelLoader, slices: SliceRunner
    ) -> None:
        self._settings, self._hosts = settings, hosts
        self._loader, self._slices = loader, slices
        self._device = device_info.device_name(settings)
        self._gpu, self._gpu_metrics = GpuSensors(self._device), GpuMetrics(self._device)
        self._states = GaugeTable(metrics.MODEL_STATE)
        self._memory = GaugeTable(metrics.MODEL_MEMORY)
        self._slots = GaugeTable(metrics.REPLICA_SLOTS)
        self._lanes = GaugeTable(metrics.LANES_WAITING)
        self._in_flight = GaugeTable(metrics.IN_HAND)

    def report(self) -> dict[str, Any]:
        """Sets the gauges, and returns the status as JSON: see `Report.about`."""
        self._hosts.utilization.update()
        db.record_connections()
        gpu = self._gpu.read()
        memory = dict(zip(("used", "total"), self._device_memory(gpu), strict=True))
        for kind, size in memory.items():
            metrics.DEVICE_MEMORY.labels(self._device, kind).set(size)
        self._gpu_metrics.record(gpu)
        rows, hosts = self._loader.rows(), dict(self._hosts.by_key)
        self._set_models(rows, hosts)
        return {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "pool": self._settings.pool,
            "device": self._device,
            "kind": device_info.device_kind(self._device),
            "price": self._settings.price,
            "memory": memory,
            gpu_reading.KEY: gpu.as_json() if gpu else None,
            "state": self._slices.state,
            "models": {row.model: _model(row, hosts.get(row.model)) for row in rows},
        }

    def _device_memory(self, gpu: GpuReading | None) -> tuple[int, int]:
        """Returns (used, total) bytes. A GPU whose models run in child processes knows them before
        this process has used CUDA."""
        if gpu and gpu.memory_used is not None and gpu.memory_total is not None:
            return gpu.memory_used, gpu.memory_total
        return device_info.device_memory(self._device)

    def _set_models(self, rows: Iterable[ModelRow], hosts: dict[str, Host]) -> None:
        in_flight = self._slices.in_flight_by_model()
        here = [(row, hosts.get(row.model)) for row in rows]
        self._states.set(
            {(row.model, state): row.state == state for row, _ in here for state in _STATES}
        )
        self._memory.set({(row.model,): row.memory_mb * _MIB for row, _ in here})
        self._slots.set({(row.model,): _slots(host) for row, host in here})
        self._lanes.set({(row.model,): host.lanes_waiting if host else 0 for row, host in here})
        self._in_flight.set({(row.model,): in_flight[row.model] for row, _ in here})


def _slots(host: Host | None) -> int:
    """Returns the launches that a model may have at a time; 0 while it drains."""
    return host.slots() if host and not host.draining else 0


def _model(row: ModelRow, host: Host | None) -> dict[str, Any]:
    """Returns a model's status. launches: those in flight, with the Unix time since when, by this
    machine's clock; profile: by bucket, how long its launches take; leaves_items: to cheaper
    workers."""
    status: dict[str, Any] = {
        "state": row.state,
        "memory_mb": row.memory_mb,
        "load_ms": row.load_ms,
        "error": row.error,
        "launches": [],
        "profile": {},
        "leaves_items": False,
    }
    if host is None:
        return status
    now_s, unix_s = clock.monotonic(), clock.now().timestamp()
    status["launches"] = [
        {
            "since": unix_s - (now_s - launch.started_s),
            "rows": len(launch.entries),
            "calls": len(launch.calls),
            "items": len(launch.items),
            "predicted_ms": launch.predicted_s * 1000,
        }
        for launch in host.launches()
    ]
    status["profile"] = {str(n): asdict(times) for n, times in host.profile().buckets.items()}
    status["slots"] = host.slots()
    status["leaves_items"] = host.capacity.leaves_items
    return status
