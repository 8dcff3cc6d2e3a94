"""Cores that a run may use, by the quotas of control groups."""

import os
from pathlib import Path

import pytest

from tests.support import cores
from tests.support.cases import each

QUOTAS = [
    ({}, None),
    ({"cpu.max": "max 100000"}, None),
    ({"cpu.max": "50000 100000"}, 0.5),
    ({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None),
    ({"cpu.cfs_quota_us": "25000", "cpu.cfs_period_us": "100000"}, 0.25),
]


def test_a_quota_bounds_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_ROOT", tmp_path)
    for (files, usable), case in each(QUOTAS):
        with case:
            for folder in (tmp_path, tmp_path / "cpu", tmp_path / "cpu,cpuacct"):
                folder.mkdir(exist_ok=True)
                for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us"):
                    (folder / name).unlink(missing_ok=True)
                for name, text in files.items():
                    (folder / name).write_text(text)
            assert cores.usable_cores() == (usable or len(os.sched_getaffinity(0)))
