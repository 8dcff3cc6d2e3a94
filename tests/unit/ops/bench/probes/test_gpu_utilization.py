"""Utilization of a GPU: the lines of nvidia-smi, and those that fall into a job."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from ops.bench.probes.gpu_utilization import is_watchable, mean_share, watch_gpu
from tests.support.wait import eventually

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_only_samples_within_the_job_count() -> None:
    samples = [(NOON + timedelta(seconds=n), share) for n, share in enumerate([0.0, 1.0, 0.8, 0.1])]
    assert mean_share(samples, samples[1][0], samples[2][0]) == pytest.approx(0.9)
    assert mean_share([], NOON, NOON) is None
    assert mean_share([(NOON, 1.0)], NOON + timedelta(seconds=1), NOON + timedelta(hours=1)) is None


@pytest.mark.heavy
def test_the_drivers_figures_are_read_while_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
