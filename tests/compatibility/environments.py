"""Environments of other people's tools, each beside ours: their packages conflict.

`make compat` builds those that are missing, in `.tools/compat`: what is pinned in `locks/NAME.txt`,
or in the lock of npm in the folder NAME. Without a registry, or where it takes too long, one stays
missing, and its tests are skipped.
"""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE.parents[1] / ".tools" / "compat"
WITHIN_S = 900.0
"""Limit of building all that is missing."""
_AT_ONCE = 2


class CannotBeBuilt(Exception):
    """The reason why an environment can't be built here."""


@dataclass(frozen=True)
class Environment:
    """Packages of a tool."""

    name: str

    @property
    def folder(self) -> Path:
        """Folder of the environment."""
        return BUILT / self.name

    @property
    def python(self) -> Path:
        """Python of the environment."""
        return self.folder / "bin" / "python"

    @property
    def encodings(self) -> list[Path]:
        """Folder of an encoding of OpenAI's, where LiteLLM brings it: there is no download."""
        return list(self.folder.glob("lib/*/site-packages/litellm/*/tokenizers"))

    def __str__(self) -> str:
        return self.name

    @property
    def is_javascript(self) -> bool:
        """True where npm installs it."""
        return (HERE / self.name / "package.json").exists()

    @property
    def lock(self) -> Path:
        """File that pins all packages."""
        if self.is_javascript:
            return HERE / self.name / "package-lock.json"
        return HERE / "locks" / f"{self.name}.txt"

    @property
    def missing(self) -> str:
        """Reason why there is none to test with; empty: there is one."""
        built = self._mark.read_text() if self._mark.exists() else ""
        return "" if built == self._digest else f"{self.name} isn't installed here: make compat"

    def build(self, deadline: float) -> None:
        """Installs what the lock pins. Raises CannotBeBuilt."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        for command in self._commands():
            _run(command, self.folder, deadline)
        self._mark.write_text(self._digest)

    @property
    def _mark(self) -> Path:
        return self.folder / "installed"

    @property
    def _digest(self) -> str:
        return sha256(self.lock.read_bytes()).hexdigest()

    def _commands(self) -> Iterator[list[str]]:
        if self.is_javascript:
            for name in ("package.json", "package-lock.json"):
                shutil.copy(self.lock.with_name(name), self.folder)
            yield ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
            return
        yield [sys.executable, "-m", "venv", "--without-pip", "."]
        yield [
            sys.executable, "-m", "pip", "--python", "bin/python", "install", "-q", "--no-deps",
            "--no-compile", "--only-binary", ":all:", "--retries", "1", "-r", str(self.lock),
        ]  # fmt: skip


def _run(command: list[str], folder: Path, deadline: float) -> None:
    left_s = deadline - time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=folder, timeout=max(0.0, left_s), capture_output=True, text=True,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise CannotBeBuilt(f"there is no {command[0]}") from error
    except subprocess.TimeoutExpired as error:
        raise CannotBeBuilt(f"it takes longer than {WITHIN_S:g} s") from error
    if done.returncode:
        raise CannotBeBuilt((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])


NAMES = sorted(
    [path.parent.name for path in HERE.glob("*/package.json")]
    + [path.stem for path in (HERE / "locks").glob("*.txt")]
)
ENVIRONMENTS = {name: Environment(name) for name in NAMES}


def build_missing() -> None:
    """Builds what is missing, and tells what can't be built."""
    deadline = time.monotonic() + WITHIN_S

    def build(one: Environment) -> str:
        try:
            one.build(deadline)
        except CannotBeBuilt as error:
            return f"{one.name} can't be installed here, its tests are skipped: {error}"
        return f"{one.name}: installed"

    wanted = [one for one in ENVIRONMENTS.values() if one.missing]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for said in pool.map(build, wanted):
            print(said, flush=True)


if __name__ == "__main__":
    build_missing()
