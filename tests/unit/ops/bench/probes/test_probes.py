"""The CPU of processes, with that of their children, and the utilization of a GPU."""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from ops.bench.probes.cpu import Meter
from ops.bench.probes.gpu_utilization import is_watchable, mean_share, watch_gpu
from tests.support.wait import eventually

BURN_S = 0.3
MEASURED_S = 0.9 * BURN_S  # at least: the kernel counts ticks
BURN = f"import time\nwhile time.process_time() < {BURN_S}: pass\ninput()"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', '''{BURN}''']); input()"


@pytest.mark.heavy
def test_children_count_while_they_run_and_once_they_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE) as process:
        meter = Meter({"tree": [process.pid]}, {"alone": process.pid})

        def of_child() -> float:
            used = meter.read()
            return used["tree"] - used["alone"]

        eventually(lambda: of_child() >= MEASURED_S)
        process.stdin.write(b"\n")
        process.stdin.flush()
        eventually(lambda: not psutil.Process(process.pid).children())
        assert of_child() >= MEASURED_S
        process.communicate(b"\n")
    assert Meter({"gone": [process.pid]}, {}).read() == {"gone": 0.0}


@pytest.mark.heavy
def test_what_this_process_burns_is_measured() -> None:
    meter = Meter({}, {"this": os.getpid()})
    before_s, until_s = meter.read()["this"], time.process_time() + BURN_S
    while time.process_time() < until_s:
        pass
    assert abs(meter.read()["this"] - before_s - BURN_S) < BURN_S / 2


NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_only_samples_within_the_job_count() -> None:
    samples = [(NOON + timedelta(seconds=n), share) for n, share in enumerate([0.0, 1.0, 0.8, 0.1])]
    assert mean_share(samples, samples[1][0], samples[2][0]) == pytest.approx(0.9)
    assert mean_share([], NOON, NOON) is None
    assert mean_share([(NOON, 1.0)], NOON + timedelta(seconds=1), NOON + timedelta(hours=1)) is None


@pytest.mark.heavy
def test_figures_of_the_driver_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nprintf '97\\n[N/A]\\n3\\n'\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert is_watchable()
    before = set(psutil.Process().children())
    with watch_gpu() as samples:
        eventually(lambda: len(samples) == 2)
    assert [share for _, share in samples] == [0.97, 0.03]
    assert set(psutil.Process().children()) <= before
