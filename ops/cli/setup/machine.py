"""Checks of the machine itself: port, home, disk, memory, open files, device."""

import errno
import importlib.util
import os
import resource
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx

from jobs.models.engines.extras import TORCH_EXTRA
from jobs.processes.open_files import WANTED
from jobs.settings import Settings
from ops.cli.setup.check import Check
from ops.embedded.layout import Layout

_MIB = 1 << 20
_LITTLE_DISK_MB, _LITTLE_MEMORY_MB, _LEAST_MEMORY_MB = 2048, 1024, 256
_FEW_FILES = 1024  # a platform with a hundred clients needs more
_ANSWER_S = 2.0
_GPU = Path("/dev/nvidiactl")  # of NVIDIA's driver
_MEMORY = Path("/proc/meminfo")


def checks(settings: Settings) -> Iterator[Check]:
    """Yields a check each."""
    yield port(settings)
    yield home(settings)
    yield disk(settings)
    yield memory()
    yield open_files()
    yield device(settings)


def port(settings: Settings) -> Check:
    """Checks that the api may listen where it should, or does."""
    where = f"{settings.host} port {settings.port}"
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((settings.host, settings.port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE and _is_ours(settings):
            return Check("port", "ok", f"an api of Millrace answers at {settings.url}")
        mend = "set MILLRACE_PORT to another, or end the program that has it (`ss -ltnp`)"
        return Check("port", "problem", f"{where}: {(error.strerror or str(error)).lower()}", mend)
    return Check("port", "ok", f"{where} is free")


def _is_ours(settings: Settings) -> bool:
    with suppress(httpx.HTTPError, ValueError, AttributeError):
        # The certificate may be for another name: nothing is sent that is secret.
        found = httpx.get(f"{settings.url}/", timeout=_ANSWER_S, verify=False)
        return bool(found.json().get("name") == "Millrace")
    return False


def home(settings: Settings) -> Check:
    """Checks that files can be made in the home, or the home where it isn't there."""
    path = Layout.of(settings.home).home
    folder = _nearest(path)
    try:
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        mend = "set MILLRACE_HOME to a folder of yours, or give this user the right to write there"
        return Check("home", "problem", f"{folder}: {(error.strerror or '').lower()}", mend)
    return Check("home", "ok", f"{path} can be written")


def disk(settings: Settings) -> Check:
    """Checks the free space of the home."""
    folder = _nearest(Layout.of(settings.home).home)
    free_mb = shutil.disk_usage(folder).free // _MIB
    words = f"{free_mb:,} MiB are free at {folder}"
    mend = "free some space, or set MILLRACE_HOME to a folder on a larger disk"
    if free_mb < settings.min_free_mb:
        least = f"below MILLRACE_MIN_FREE_MB ({settings.min_free_mb}) jobs are refused"
        return Check("disk", "problem", f"{words}; {least}", mend)
    if free_mb < _LITTLE_DISK_MB:
        return Check("disk", "warning", words, mend)
    return Check("disk", "ok", words)


def memory() -> Check:
    """Checks the memory that is free."""
    try:
        fields = dict(line.split(":") for line in _MEMORY.read_text().splitlines())
        free_mb = int(fields["MemAvailable"].split()[0]) // 1024
    except (OSError, ValueError, KeyError, IndexError):
        return Check("memory", "warning", f"{_MEMORY} doesn't say how much is free")
    words = f"{free_mb:,} MiB are free"
    mend = "end other programs; a models file with fewer models (`millrace init`) needs less"
    if free_mb < _LITTLE_MEMORY_MB:
        return Check("memory", "problem" if free_mb < _LEAST_MEMORY_MB else "warning", words, mend)
    return Check("memory", "ok", words)


def open_files() -> Check:
    """Checks how many files a process may open: each connection of a client is one."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= WANTED:
        return Check("files", "ok", "a process may open as many files as it needs")
    mend = f"raise the hard limit to {WANTED} (LimitNOFILE of systemd, --ulimit nofile of docker)"
    words = f"a process may open {hard} files, and each connection of a client is one"
    return Check("files", "problem" if hard < _FEW_FILES else "warning", words, mend)


def device(settings: Settings) -> Check:
    """Checks that torch is there, and sees the GPU."""
    if importlib.util.find_spec("torch") is None:
        mend = f"{TORCH_EXTRA}; models of the engines echo, function and python do without"
        return Check("torch", "warning", "torch is not installed", mend)
    import torch

    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count()))
        return Check("torch", "ok", f"torch {torch.__version__} with CUDA: {names}")
    asked = settings.device.startswith(("cuda", "GPU-", "MIG-"))
    if asked or _GPU.exists():
        what = f"MILLRACE_DEVICE={settings.device}" if asked else "a GPU is here"
        mend = "install a build of torch for CUDA and the driver (`nvidia-smi` must list the GPU)"
        words = f"{what}, but torch {torch.__version__} has no CUDA"
        return Check("torch", "problem" if asked else "warning", words, mend)
    cores = len(os.sched_getaffinity(0))
    return Check("torch", "ok", f"torch {torch.__version__}; no GPU: models run on {cores} cores")


def _nearest(path: Path) -> Path:
    """Returns the folder, or the first one above it that is there."""
    return path if path.exists() else _nearest(path.parent)
