"""A wheel of the checkout, and virtual environments that it is installed into.

Its requirements are links to what is installed here, and to nothing else: an environment has what
the wheel asks for, without a download.
"""

import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from email.message import Message
from email.parser import Parser
from functools import cached_property
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SOURCES = (
    "api", "jobs", "migrations", "ops", "workers", "pyproject.toml", "README.md", "LICENSE",
)  # fmt: skip
VERSION = str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])
_BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


class Wheel:
    """Wheel of the checkout, built into this folder."""

    def __init__(self, folder: Path) -> None:
        source = folder / "source"
        source.mkdir()
        for name in SOURCES:
            (source / name).symlink_to(ROOT / name)
        command = [sys.executable, "-c", _BUILD, str(folder)]
        done = subprocess.run(command, cwd=source, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        [self.path] = folder.glob("*.whl")

    @cached_property
    def sizes(self) -> dict[str, int]:
        """Bytes of each file, by its path."""
        with zipfile.ZipFile(self.path) as archive:
            return {one.filename: one.file_size for one in archive.infolist()}

    @cached_property
    def metadata(self) -> Message:
        """Headers of METADATA."""
        [name] = [name for name in self.sizes if name.endswith(".dist-info/METADATA")]
        with zipfile.ZipFile(self.path) as archive:
            return Parser().parsestr(archive.read(name).decode())

    def required(self, *extras: str) -> dict[str, Distribution]:
        """Distributions that it asks for, and those that they ask for, by name."""
        found: dict[str, Distribution] = {}
        _collect(self.metadata.get_all("Requires-Dist") or [], ("", *extras), found)
        return found


def _collect(
    requirements: Iterable[str], extras: Iterable[str], found: dict[str, Distribution]
) -> None:
    for one in map(Requirement, requirements):
        wanted = one.marker is None or any(one.marker.evaluate({"extra": e}) for e in extras)
        if not wanted:
            continue
        if one.name == "millrace":  # an extra that is made of others
            _collect(requirements, one.extras, found)
            continue
        key = f"{one.name.lower()}[{','.join(sorted(one.extras))}]"
        if key not in found:
            found[key] = distribution(one.name)
            _collect(found[key].requires or [], ("", *one.extras), found)


class Environment:
    """Virtual environment with a wheel and its requirements, without a compiler."""

    def __init__(self, folder: Path, wheel: Wheel, *extras: str) -> None:
        self.bin = folder / "bin"
        self.home = folder / "cwd"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        self.home.mkdir()
        [self.site] = folder.glob("lib/python*/site-packages")
        for one in wheel.required(*extras).values():
            for path in set(_roots(one)):
                if not (self.site / path.name).exists():
                    (self.site / path.name).symlink_to(path)
        pip = [sys.executable, "-m", "pip", "--python", str(self.bin / "python")]
        install = ["install", "-q", "--no-index", "--no-deps", "--no-compile", str(wheel.path)]
        done = subprocess.run(
            [*pip, *install], env=self.environ(), cwd=self.home, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr

    def environ(self, **ours: str) -> Mapping[str, str]:
        """Variables of a process: without the checkout and without a compiler."""
        none = {"PATH": f"{self.bin}:/usr/bin:/bin", "CC": "/bin/false", "CXX": "/bin/false"}
        return {**none, "HOME": str(self.home), **ours}

    def run(
        self, *command: str, status: int = 0, **ours: str
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a command in an empty folder."""
        done = subprocess.run(
            command, cwd=self.home, env=self.environ(**ours), capture_output=True, text=True
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done


def _roots(one: Distribution) -> Iterator[Path]:
    """Yields the files and folders of a distribution that lie in site-packages."""
    for file in one.files or ():
        top = file.parts[0]
        if top not in ("..", "__pycache__"):
            yield Path(str(one.locate_file(top)))
