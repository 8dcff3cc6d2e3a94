"""A disk that fills up: work is refused in time, and a platform goes on when there is room."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from ops.embedded.ballast import Ballast
from ops.supervisor.platform import Platform
from tests.support.children import kill_server
from tests.support.platforms import LIGHT, Platforms, spec
from tests.support.wait import eventually

_DISK_MB = 320
_JOB_ITEMS, _ITEM_BYTES = 1000, 18_000
_FLOOR_MB = 96
_JOBS = 12  # more than the disk holds


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 320 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MB}m,mode=711", "millrace-test", folder]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs to mount a file system")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_intake_ends_at_the_floor_and_a_full_disk_loses_nothing(
    platforms: Platforms, disk: Path
) -> None:
    small = spec(LIGHT, min_free_mb=_FLOOR_MB)
    with platforms.running(small, home=disk / "home") as platform:
        jobs = list(_until_refused(platform))
        assert 0 < len(jobs) < _JOBS
        with httpx.Client(base_url=platform.url) as http:
            _completed(platform, http, jobs)
            eventually(lambda: _refused(http))  # what the results took isn't free again

            filler, ballast = disk / "filler", disk / "home" / "ballast"
            _fill(filler)
            kill_server(platform.servers.postgres)  # as a write error of its log does
            if ballast.exists():  # it may start without the ballast's space, too
                eventually(lambda: _polled(platform, http) == 200)

            _fill(disk / "more")
            kill_server(platform.servers.postgres)
            assert _polled(platform, http) in (200, 503)  # it may need no more than it has
            assert http.get("/livez").status_code == 200
            for _ in range(20):  # the supervisor goes on, though PostgreSQL has no space
                platform.poll()
            (disk / "more").unlink()
            filler.unlink()
            eventually(lambda: _polled(platform, http) == 200)
            call = {"model": "echo", "input": "again"}
            eventually(lambda: http.post("/infer", json=call).status_code == 200)
            for job in jobs:
                lines = http.get(f"/jobs/{job}/results", params={"limit": 1}).text.splitlines()
                assert json.loads(lines[0])["seq"] == 0
        assert "signal 11" not in platform.servers.postgres.log.read_text()


@pytest.mark.nightly
def test_intake_is_taken_again_when_there_is_room(platforms: Platforms, disk: Path) -> None:
    with platforms.running(spec(LIGHT, min_free_mb=_FLOOR_MB), home=disk / "home") as platform:
        filler = disk / "filler"
        free = shutil.disk_usage(disk).free
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - (_FLOOR_MB << 20) // 2)
        with httpx.Client(base_url=platform.url) as http:
            eventually(lambda: _refused(http))
            refusal = http.post("/jobs", json={"model": "echo", "items": ["x"]})
            assert (refusal.status_code, refusal.json()["code"]) == (507, "insufficient_storage")
            assert "MILLRACE_MIN_FREE_MB" in refusal.json()["detail"]
            assert refusal.headers["retry-after"]
            assert http.post("/infer", json={"model": "echo", "input": 1}).status_code == 200
            assert http.get("/jobs").status_code == 200
            filler.unlink()
            eventually(lambda: not _refused(http))


def test_a_ballast_is_kept_where_there_is_space_and_released_on_a_full_disk(disk: Path) -> None:
    ballast = Ballast(disk)
    ballast.keep()
    size = ballast.path.stat().st_size
    assert size == (_DISK_MB << 20) // 16
    assert not ballast.release()  # the disk isn't full
    filler = disk / "filler"
    _fill(filler)
    assert ballast.release()
    assert shutil.disk_usage(disk).free >= size
    ballast.keep()
    assert not ballast.path.exists()  # too little space to keep any of it


def _until_refused(platform: Platform) -> Iterator[str]:
    """Posts jobs of 18 MB until one is refused with 507."""
    body = "".join(f'"{n:05}{"x" * _ITEM_BYTES}"\n' for n in range(_JOB_ITEMS))
    headers = {"Content-Type": "application/x-ndjson"}
    with httpx.Client(base_url=platform.url) as http:
        for _ in range(_JOBS):
            posted = http.post("/jobs?model=echo", content=body, headers=headers)
            platform.poll()
            if posted.status_code == 507:
                return
            assert posted.status_code == 202, posted.text
            yield posted.json()["id"]


def _completed(platform: Platform, http: httpx.Client, jobs: list[str]) -> None:
    def states() -> set[str]:
        platform.poll()  # PostgreSQL may have found no space for its log
        return {http.get(f"/jobs/{job}").json().get("state") for job in jobs}

    eventually(lambda: states() == {"completed"})


def _refused(http: httpx.Client) -> bool:
    return http.post("/jobs", json={"model": "echo", "items": ["x"]}).status_code == 507


def _fill(filler: Path) -> None:
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 16))


def _polled(platform: Platform, http: httpx.Client) -> int:
    platform.poll()
    return http.get("/jobs").status_code
