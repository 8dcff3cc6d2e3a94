"""Pages whose examples are run as a reader would: files saved, commands in a shell."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.support.models.entries import model
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "ops" / "top-level"  # where `millrace` is found
MINILM = model("minilm", "minilm", limits={"max_batch": 64, "max_tokens": 512})
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"(?:#|//|--) ([\w/-]+\.\w+)\n")
_NAMED_ABOVE = re.compile(r"^\*\*([\w-]+\.\w+)\*\*[^\n]*:\n\n```(\w+)\n", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    title: str
    blocks: tuple[tuple[str, str], ...]  #: (language, text), as they follow each other
    left_out: tuple[str, ...] = ()  #: beginnings of commands that aren't run

    @property
    def files(self) -> dict[str, str]:
        """Files by the name in their first line."""
        found = ((_NAMED.match(text), text) for _, text in self.blocks)
        return {name[1]: text for name, text in found if name}

    @property
    def commands(self) -> str:
        """One shell does them all: what it exports and starts is there for the next ones."""
        return "".join(filter(None, map(self._command, self.blocks)))

    @property
    def shown(self) -> str:
        """Output, as the page shows it."""
        return "".join(text for language, text in self.blocks if language == "text")

    def _command(self, block: tuple[str, str]) -> str:
        language, text = block
        if language == "python" and not _NAMED.match(text):
            return f"python - << 'END_OF_PYTHON'\n{text}END_OF_PYTHON\n"
        lines = text.splitlines(keepends=True) if language == "bash" else []
        return "".join(line for line in lines if not line.startswith(self.left_out))


def recipe(title: str, text: str, left_out: Iterable[str] = ()) -> Recipe:
    """Returns a page, or a part of one. left_out: beginnings of commands that aren't run."""
    text = _NAMED_ABOVE.sub(r"```\2\n# \1\n", text)
    return Recipe(title, tuple(_FENCED.findall(text)), tuple(left_out))


def sections(text: str, left_out: Iterable[str] = ()) -> list[Recipe]:
    """Returns the sections of a page, without what stands before the first one."""
    parts = re.split(r"^##+ ", text, flags=re.MULTILINE)[1:]
    return [recipe(part.partition("\n")[0], part, left_out) for part in parts]


def as_shown(shown: str) -> re.Pattern[str]:
    """… stands for any part of a line; on a line of its own, for any lines or none."""
    lines = [
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in shown.splitlines()
    ]
    return re.compile("".join(lines))


def lay_out(
    folder: Path, recipes: Iterable[Recipe], models: str, python: str | Path = sys.executable
) -> None:
    """Fills a reader's folder: the files of all recipes, the models file, and an installation.

    python: of the environment that the recipes are for."""
    entries = [models]
    for recipe in recipes:
        for name, content in recipe.files.items():
            if name == "models.toml":
                entries.append(content)
            else:
                (folder / name).parent.mkdir(exist_ok=True)
                (folder / name).write_text(content)
    (folder / "models.toml").write_text("\n".join(entries))
    for name, called in (("millrace", f'"{sys.executable}" -P -m ops'), ("python", f'"{python}"')):
        command = folder / ".venv" / "bin" / name
        command.parent.mkdir(parents=True, exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {called} "$@"\n')
        command.chmod(0o755)


def run(
    recipe: Recipe, folder: Path, environ: Mapping[str, str], patience_s: float = PATIENCE_S
) -> str:
    """Runs the commands of a recipe in a laid out folder; returns what they print. Fails with what
    they say where one fails."""
    path = f"{folder / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    given = {"PATH": path, "PYTHONPATH": f"{CLIENT}{os.pathsep}{ROOT}"}
    printed, said = folder / "printed.log", folder / "said.log"
    with printed.open("w") as out, said.open("w") as err:
        shell = subprocess.Popen(
            ["bash", "-c", f"set -euxo pipefail\n{recipe.commands}"],
            cwd=folder, env={**os.environ, **given, **environ},
            stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
        try:
            status = shell.wait(patience_s)
        finally:
            with suppress(ProcessLookupError):  # what it left in the background
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    assert status == 0, said.read_text()
    return printed.read_text()
