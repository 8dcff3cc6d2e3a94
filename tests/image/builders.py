"""Builders of the image: docker where a daemon answers, else the steps of the file one by one."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import pytest

from tests.image import stages
from tests.image.dockerfile import in_context

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "ops" / "deploy" / "Dockerfile"
_DEBIAN = "bookworm"
_TAG = "millrace:tested"
_OF_THE_NETWORK = ("cert", "default-timeout", "find-links", "index-url", "proxy", "trusted-host")

Done = "subprocess.CompletedProcess[str]"


class Image(Protocol):
    """Image that was built."""

    def start(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """Runs its entry point with these words, or with its own."""

    def execute(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Runs a program in it."""

    def labels(self) -> Mapping[str, str]:
        """Returns its labels."""


class DockerImage:
    """Image of a docker daemon."""

    def __init__(self) -> None:
        arguments = ["-f", str(DOCKERFILE), "-t", _TAG]
        subprocess.run(["docker", "build", *arguments, str(ROOT)], check=True)

    def start(self, *words: str) -> "subprocess.CompletedProcess[str]":
        return self._run(_TAG, *words)

    def execute(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return self._run("--entrypoint", command[0], _TAG, *command[1:])

    def labels(self) -> Mapping[str, str]:
        asked = ["docker", "inspect", "-f", "{{json .Config.Labels}}", _TAG]
        done = subprocess.run(asked, check=True, capture_output=True)
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def _run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        command = ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", *words]
        return subprocess.run(command, capture_output=True, text=True)


class StepwiseImage:
    """Last stage of the file's steps, on a Debian that has Python in place of the file's base."""

    def __init__(self, folder: Path) -> None:
        context = folder / "context"
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
        )
        ignored = (DOCKERFILE.parent / "Dockerfile.dockerignore").read_text()
        for name in in_context(listed.stdout.splitlines(), ignored):
            (context / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, context / name)
        network, shared = pip_of_this_machine()
        self._stage = stages.build(
            DOCKERFILE.read_text(), context, debian(), folder, {}, network, shared
        )
        self.start, self.execute = self._stage.start, self._stage.execute

    def labels(self) -> Mapping[str, str]:
        return self._stage.state.labels


def built(folder: Path) -> Image:
    """Builds the image, or skips the test where nothing here can."""
    if _answers("docker", "info"):
        return DockerImage()
    if why := stages.lacking() or _out_of_reach(folder):
        pytest.skip(why)
    return StepwiseImage(folder)


def _out_of_reach(folder: Path) -> str:
    """Says which part of the network is missing; "": none."""
    if not shutil.which("debootstrap"):
        return "debootstrap isn't installed"
    small = ["download", "-q", "--no-deps", "--retries", "0", "-d", str(folder), "setproctitle"]
    if not _answers(sys.executable, "-m", "pip", *small):
        return "no package index is in reach"
    return ""


def debian() -> Path:
    """Returns a folder with a minimal Debian and its Python; made once. Skips the test where
    Debian's packages are out of reach."""
    found = ROOT / "build" / f"image-base-{_DEBIAN}"
    if not found.exists():
        making = found.with_name(f"{found.name}.{os.getpid()}")
        packages = "--include=ca-certificates,python3,python3-venv"
        done = subprocess.run(
            ["debootstrap", "--variant=minbase", packages, _DEBIAN, str(making)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        if done.returncode:
            shutil.rmtree(making, ignore_errors=True)
            pytest.skip(f"debootstrap made no Debian: {done.stdout[-300:]}")
        (making / "usr/local/bin/python").symlink_to("/usr/bin/python3")
        making.rename(found)
    return found


def pip_of_this_machine() -> tuple[dict[str, str], list[Path]]:
    """Returns the settings by which pip reaches its indexes here, and the paths that they name.

    PyTorch's own index may be out of reach: pip then looks at Python's, or where wheels lie.
    """
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True
    )
    environ = {"PIP_RETRIES": "0", "PIP_EXTRA_INDEX_URL": _default_index()}
    shared = [Path("/etc/resolv.conf")]
    for line in listed.stdout.splitlines():
        key, _, value = line.partition("=")
        name, value = key.rpartition(".")[2], value.strip("'")
        if name in _OF_THE_NETWORK:
            environ[f"PIP_{name.upper().replace('-', '_')}"] = value
            shared += [Path(word) for word in value.split() if Path(word).is_absolute()]
    return environ, [path for path in shared if path.exists()]


def _default_index() -> str:
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _answers(*command: str) -> bool:
    if not shutil.which(command[0]):
        return False
    # Other tests have no index, so that none depends on one.
    environ = {name: value for name, value in os.environ.items() if name != "PIP_NO_INDEX"}
    try:
        done = subprocess.run(command, env=environ, capture_output=True, timeout=60)
        return done.returncode == 0
    except subprocess.TimeoutExpired:
        return False
