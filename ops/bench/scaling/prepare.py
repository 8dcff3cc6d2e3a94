"""A job whose items are prepared by workers of their own: items a second beside those of the slower
of preparation alone and device alone, on the same platform.

Preparation is 6 ms of one CPU an item, and leaves an array of 48 KB; a launch of up to 16 items
takes 80 ms for which the device worker only waits, as for a GPU.
"""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Engine, text

from jobs import clock, ids
from millrace import Client
from ops.bench.harness.platform import database_of, say, wait_until
from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report
from ops.supervisor.platform import Platform, running

ASKED = ("prepare_ratio >= 0.9",)

_ITEMS = 4500  # fewer than are prepared ahead of a device worker that stands still
_WITHIN_S = 600.0
_CODE = """
import time
import zlib

import numpy as np

SAMPLES = ["warm"]
_PACKED = zlib.compress(np.random.default_rng(1).integers(0, 8, 49_152, np.uint8).tobytes())


def prepare(value):
    until_s = time.thread_time() + 0.006
    while time.thread_time() < until_s:
        pixels = np.frombuffer(zlib.decompress(_PACKED), np.uint8)
    return pixels


def predict(batch):
    time.sleep(0.08)
    return [int(pixels[0]) for pixels in batch]
"""
_MODEL = """
[[model]]
name = "pictures"
version = "1"
engine = "python"
prepare = "pool"
options = { file = "pictures.py" }
limits = { max_batch = 16, slice_items = 100 }
"""
_LEFT = "SELECT count(*) FROM slices WHERE job_id = :job AND version LIKE '%~prepare'"


def measure(report: Report, scale: Scale) -> None:
    """Measures one job in two steps, then jobs as they run."""
    items = int(_ITEMS * scale.share)
    with _platform() as platform, database_of(platform) as database:
        client = Client(platform.url)
        _run(client, platform, 100)
        prepared, launched = _alone(client, platform, database, items)
        together = [_run(client, platform, items) for _ in range(scale.rounds)]
    say(f"alone: {prepared:.0f} items/s prepared, {launched:.0f} launched")
    slower = min(prepared, launched)
    report.add("prepare_", alone=prepared, device_alone=launched)
    report.median("prepare_", together=together, ratio=[one / slower for one in together])


def _alone(client: Client, platform: Platform, database: Engine, items: int) -> tuple[float, float]:
    """Returns items a second of preparation while the device worker stands still, and of launches
    once all is prepared."""
    worker = next(one.pid for one in platform.supervisor.children if one.name == "worker-1")
    assert worker
    os.kill(worker, signal.SIGSTOP)
    try:
        since_s = clock.monotonic()
        job = _submitted(client, items)

        def prepared() -> bool:
            with database.connect() as tx:
                return not tx.scalar(text(_LEFT), {"job": ids.parse("job", job)})

        wait_until(prepared, "all is prepared", _WITHIN_S)
        prepared_s = clock.monotonic() - since_s
    finally:
        os.kill(worker, signal.SIGCONT)
    since_s = clock.monotonic()
    _await_end(client, platform, job)
    return items / prepared_s, items / (clock.monotonic() - since_s)


def _run(client: Client, platform: Platform, items: int) -> float:
    """Returns items a second of a job, from its submission to its end."""
    since_s = clock.monotonic()
    _await_end(client, platform, _submitted(client, items))
    return items / (clock.monotonic() - since_s)


def _submitted(client: Client, items: int) -> str:
    lines = [b'"picture %d"\n' % n for n in range(items)]
    return str(client.jobs.submit("pictures", lines)["id"])


def _await_end(client: Client, platform: Platform, job: str) -> None:
    def ended() -> bool:
        platform.poll()
        return bool(client.jobs.get(job)["state"] == "completed")

    wait_until(ended, "the job has ended", _WITHIN_S)


@contextmanager
def _platform() -> Iterator[Platform]:
    say("starting a platform of a worker, and one that prepares")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        declared = Path(folder) / "models.toml"
        declared.write_text(_MODEL)
        (Path(folder) / "pictures.py").write_text(_CODE)
        # A device worker that stands still keeps its place for the time of a step.
        home = Path(folder) / "home"
        with running(home, models=declared, lease_s=60.0, prepare_ahead_mb=1024) as platform:
            yield platform
