"""Every recipe of the cookbook, and each example of the client, does what its page says, run as a
reader would: its files saved, its entries in the models file, its commands in a shell, their output
as it is shown."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.platforms import SAMPLES, Platforms, spec
from tests.support.wait import PATIENCE_S

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "ops" / "docs" / name for name in ("cookbook.md", "client.md")]
BUCKET = "texts"
MODELS = """
[[model]]
name = "minilm"
version = "1"
engine = "minilm"
limits = { max_batch = 64, max_tokens = 512 }

[[model]]
name = "echo"
version = "1"
engine = "echo"

[[model]]
name = "batchstring"
version = "1"
engine = "function"
options = { function = "workers.engines.samples:batchstring", samples = ["a string"] }

[[model]]
name = "simple"
version = "1"
engine = "tensors"

[model.options]
function = "workers.engines.samples:sum_and_difference"
inputs = [
    { name = "INPUT0", datatype = "INT32", shape = [-1, 16] },
    { name = "INPUT1", datatype = "INT32", shape = [-1, 16] },
]
outputs = [
    { name = "OUTPUT0", datatype = "INT32", shape = [-1, 16] },
    { name = "OUTPUT1", datatype = "INT32", shape = [-1, 16] },
]
"""
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"# ([\w-]+\.\w+)\n")
_PORT = re.compile(r"\b90\d\d\b")


@dataclass(frozen=True)
class Recipe:
    """blocks: (language, text), as they follow each other."""

    title: str
    blocks: tuple[tuple[str, str], ...]

    @property
    def files(self) -> dict[str, str]:
        """Files by the name in their first line."""
        found = ((_NAMED.match(text), text) for _, text in self.blocks)
        return {name[1]: text for name, text in found if name}

    @property
    def commands(self) -> str:
        """One shell does them all: what it exports and starts is there for the next ones."""
        return "".join(text for language, text in self.blocks if language == "bash")

    @property
    def shown(self) -> str:
        return "".join(text for language, text in self.blocks if language == "text")


def recipes() -> dict[str, Recipe]:
    ports: dict[str, str] = {}

    def free(port: re.Match[str]) -> str:  # those of the page may be taken here
        return ports.setdefault(port[0], str(free_port()))

    found = [
        Recipe(section.partition("\n")[0], tuple(_FENCED.findall(section)))
        for page in PAGES
        for section in re.split(r"^## ", _PORT.sub(free, page.read_text()), flags=re.MULTILINE)[1:]
        if page == PAGES[0] or _FENCED.search(section)
    ]
    return {recipe.title: recipe for recipe in found}


RECIPES = recipes()


def as_shown(shown: str) -> re.Pattern[str]:
    """… stands for any part of a line; on a line of its own, for any lines or none."""
    lines = [
        r"(?:.*\n)*" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
        for line in shown.splitlines()
    ]
    return re.compile("".join(lines))


@pytest.fixture(scope="module")
def environ() -> Iterator[dict[str, str]]:
    """An S3, and who may use it: for the platform and for the recipes."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    given = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "recipes",
        "AWS_SECRET_ACCESS_KEY": "recipes",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in given.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        client.close()
        yield given
    server.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reader's folder: the files of all recipes, and the models file."""
    found = tmp_path_factory.mktemp("cookbook")
    models = [MODELS]
    for recipe in RECIPES.values():
        for name, content in recipe.files.items():
            if name == "models.toml":
                models.append(content)
            else:
                (found / name).write_text(content)
    (found / "models.toml").write_text("\n".join(models))
    (found / "lib").mkdir()
    (found / "lib" / "millrace").symlink_to(ROOT / "ops" / "client")  # as it is installed
    for name, arguments in (("millrace", "-m ops"), ("python", "")):
        command = found / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        command.chmod(0o755)
    return found


@pytest.fixture(scope="module")
def platform(folder: Path, environ: dict[str, str], platforms: Platforms) -> Iterator[Platform]:
    wanted: dict[str, Any] = {
        "models": folder / "models.toml",
        "webhook_allow": "127.0.0.1",
        "s3_allow": BUCKET,
        "s3_endpoint": environ["AWS_ENDPOINT_URL"],
    }
    with platforms.running(spec(SAMPLES), home=folder / "home", **wanted) as started:
        yield started


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES.keys())
def test_a_recipe_shows_what_comes_of_it(recipe: Recipe) -> None:
    assert recipe.commands
    assert recipe.shown
    assert {language for language, _ in recipe.blocks} <= {"bash", "python", "toml", "text"}
    unnamed = [text for kind, text in recipe.blocks if kind in ("python", "toml")]
    assert len(unnamed) == len(recipe.files)


@pytest.mark.parametrize("title", RECIPES)
def test_a_recipe_does_what_it_says(
    title: str, folder: Path, tmp_path: Path, platform: Platform, environ: dict[str, str]
) -> None:
    recipe = RECIPES[title]
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    modules = f"{folder / 'lib'}{os.pathsep}{ROOT}"
    given = {"PATH": path, "PYTHONPATH": modules, "MILLRACE_URL": platform.url}
    script = f"set -euo pipefail\n{recipe.commands}"
    printed, said = tmp_path / "printed", tmp_path / "said"
    with printed.open("w") as out, said.open("w") as err:
        shell = subprocess.Popen(
            ["bash", "-c", script], cwd=folder, env={**os.environ, **environ, **given},
            stdout=out, stderr=err, start_new_session=True,
        )  # fmt: skip
        try:
            status = shell.wait(PATIENCE_S)
        finally:
            with suppress(ProcessLookupError):  # what it left in the background
                os.killpg(shell.pid, signal.SIGKILL)
            shell.wait()
    assert status == 0, said.read_text()
    assert as_shown(recipe.shown).fullmatch(printed.read_text()), printed.read_text()
