"""A platform whose workers `millrace up` starts and drains, under a step from 20 to 400 calls a
second and back. A worker does 100 calls a second in full launches, so that six are needed."""

import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from jobs import clock
from jobs.settings import Settings
from millrace import Client
from ops.bench.harness.models_files import models_file, sample
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load import workloads
from ops.bench.load.arrivals import poisson
from ops.bench.load.open_loop import Calls, drive
from ops.bench.results.report import Report
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform

ASKED = ("live_late_share <= 0.02", "live_most >= 6", "live_end <= 1", "live_died <= 0")

_LOW, _HIGH, _MOST = 20.0, 400.0, 6
_TARGET_MS, _ROWS = 500, 10  # a launch takes 100 ms, with up to so many calls
_BEFORE_S, _UP_S, _DOWN_S = 15.0, 90.0, 180.0
_POLICY = {
    "max_replicas": _MOST, "actuator": "local", "boot_s": 5, "cooldown_s": 10, "min_stay_s": 20,
    "forecast": 0,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Look:
    """Workers at one time."""

    at_s: float  #: monotonic
    ready: int
    desired: int


def measure(report: Report, scale: Scale) -> None:
    """Plays the step once."""
    up_s, down_s = (scale.seconds(each) for each in (_UP_S, _DOWN_S))
    phases = ((_LOW, _BEFORE_S), (_HIGH, up_s), (_LOW, down_s))
    with _platform() as platform:
        client = Client(platform.url)
        client.request("PUT", "/admin/pools/default/scaling", json={"policy": _POLICY})
        calls, looks = _drive(platform, client, _due_s(phases))
        died = [worker["died"] for worker in client.get("/workers")["data"]]
        for event in reversed(client.get("/admin/pools/default")["events"]):
            say(f"{event['act']} {event['desired']}: {event['reason']}")
    step_s = calls.started_s + _BEFORE_S
    most = max(look.desired for look in looks)
    ready_s = min(
        (look.at_s for look in looks if look.ready >= most), default=step_s + up_s
    )  # all that were asked for
    after = calls.between(ready_s, step_s + up_s)
    report.add(
        "live_",
        most=most,
        ready_s=ready_s - step_s,
        late_share=_late_share(after),
        late_share_of_all=_late_share(calls),
        end=looks[-1].desired,
        died=sum(how is not None for how in died),
        failed=calls.failed,
    )


def _due_s(phases: Sequence[tuple[float, float]]) -> list[float]:
    due_s, since_s = list[float](), 0.0
    for seed, (per_s, seconds) in enumerate(phases):
        due_s += [since_s + at_s for at_s in poisson(per_s, seconds, seed)]
        since_s += seconds
    return due_s


def _late_share(calls: Calls) -> float:
    """Returns the share of calls without the right answer within the target, refused ones too."""
    in_time = calls.right & (calls.latency_ms <= _TARGET_MS)
    return float(1 - np.mean(in_time)) if len(calls) else 0.0


def _drive(platform: Platform, client: Client, due_s: list[float]) -> tuple[Calls, list[_Look]]:
    """Sends the calls from another process, and looks after the platform meanwhile."""
    looks: list[_Look] = []
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(drive, workloads.batchstring(platform, due_s))
        while not sent.done():
            platform.poll()
            looks.append(_look(client.get("/admin/pools/default")))
            clock.sleep(0.5)
        return sent.result(), looks


def _look(pool: Any) -> _Look:
    desired = (pool["scaling"] or {}).get("desired")
    return _Look(clock.monotonic(), pool["workers"].get("ready", 0), desired or 0)


@contextmanager
def _platform() -> Iterator[Platform]:
    say(f"starting a platform of one worker, and up to {_MOST}")
    model = sample("batchstring", target_ms=_TARGET_MS, limits={"max_batch": _ROWS})
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        home = Path(folder)
        (home / "models.toml").write_text(models_file(model))
        configured = Settings(home=home, port=free_port(), models=home / "models.toml")
        platform = Platform(configured, logs=home / "logs", most_workers=_MOST)
        platform.start()
        try:
            yield platform
        finally:
            platform.stop()
