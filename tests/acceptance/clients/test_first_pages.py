"""The README, and the pages of the first steps, literally: every command of theirs, one after the
other, as it is written."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ops.supervisor.platform import Platform
from tests.support.command_line import run_millrace
from tests.support.pages import MINILM, ROOT, Recipe, lay_out, recipe, run, sections
from tests.support.platforms import LIGHT, Platforms, spec

pytestmark = pytest.mark.nightly
HOW_TO = ROOT / "ops" / "docs" / "how-to"
LEFT_OUT = {
    "make demo": "installs the checkout, and takes a minute or two: CI runs it by itself",
    "make test": "runs these tests",
    "MILLRACE_MODELS=models.toml millrace up": "runs until Ctrl-C: the platform of this test is it",
    "millrace doctor": "its status is that of the machine: a busy one has problems",
}
_COMMAND = re.compile(r"^ {4}(?:\S+=\S+ )*(?:make|curl|millrace|\.venv\S+|export|pip) ", re.M)


def _section(page: str, title: str) -> Recipe:
    text = (HOW_TO / page).read_text()
    [found] = [one for one in sections(text, LEFT_OUT) if one.title == title]
    return found


RUNNING = HOW_TO / "operations" / "running.md"
PAGES = [ROOT / "README.md", HOW_TO / "operations" / "tenants.md"]
RECIPES = [
    recipe("README.md", PAGES[0].read_text(), LEFT_OUT),
    recipe("running.md", RUNNING.read_text().partition("\n## ")[0], LEFT_OUT),
    _section("models/models.md", "A custom model in ten lines"),
    _section("models/models.md", "`function`: a function of texts"),
    # keys are made: the platform is closed from then on
    recipe("tenants.md", PAGES[1].read_text(), LEFT_OUT),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("reader")
    lay_out(found, RECIPES, LIGHT + MINILM)
    return found


@pytest.fixture(scope="module")
def platform(folder: Path, platforms: Platforms) -> Iterator[Platform]:
    wanted = {"home": folder / "home", "models": folder / "models.toml"}
    with platforms.running(spec(""), **wanted) as started:
        yield started


def test_all_commands_of_these_pages_are_run_or_left_out_by_name() -> None:
    texts = [path.read_text() for path in PAGES]
    assert [_COMMAND.findall(text) for text in texts] == [[], []]  # they are in blocks of bash
    shell = "".join(text for one in RECIPES for kind, text in one.blocks if kind == "bash")
    assert [start for start in LEFT_OUT if not re.search(f"^{re.escape(start)}", shell, re.M)] == []


def test_every_command_does_as_it_is_written(folder: Path, platform: Platform) -> None:
    address = urlsplit(platform.url).netloc
    environ = {"MILLRACE_URL": platform.url, "MILLRACE_HOME": str(folder / "home")}
    for one in RECIPES:
        blocks = tuple((kind, text.replace("localhost:8000", address)) for kind, text in one.blocks)
        run(Recipe(one.title, blocks, one.left_out), folder, environ)
    vectors = (folder / "vectors.jsonl").read_text().splitlines()
    assert len(vectors) == 2
    said = run_millrace("infer", "--model", "shout", "hello", status=1, **environ).output
    assert "MILLRACE_API_KEY" in said
    assert "keys create --tenant NAME --role admin" in said
