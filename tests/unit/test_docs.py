"""What the pages name is there: files, links, settings, commands."""

import re
from pathlib import Path

import click
import pytest

from jobs.settings import Settings, is_secret
from jobs.store.invariants import INVARIANTS
from ops.cli.main import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "ops" / "docs"
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md"))]
SETTINGS = {f"MILLRACE_{name.upper()}" for name in Settings.model_fields}
SETTINGS |= {
    f"MILLRACE_{name.upper()}_FILE"
    for name, field in Settings.model_fields.items()
    if is_secret(field)
}
OUTSIDE_SETTINGS = {
    "MILLRACE_CONFIG", "MILLRACE_URL", "MILLRACE_SHARED", "MILLRACE_API_KEY"
}  # fmt: skip
SOURCES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("api", "jobs", "migrations", "ops", "tests", "workers")
    for path in (ROOT / folder).rglob("*")
]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


@each_page
def test_files_that_a_page_names_exist(page: Path) -> None:
    named = re.findall(r"`((?:\w+/)*\w+\.(?:py|md))`", page.read_text())
    assert [name for name in named if not _exists(name)] == []


def _exists(name: str) -> bool:
    return (ROOT / name).exists() or any(path.endswith(f"/{name}") for path in SOURCES)


@each_page
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]+)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []


@each_page
def test_settings_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"MILLRACE_[A-Z0-9_]*[A-Z0-9]", page.read_text()))
    assert named <= SETTINGS | OUTSIDE_SETTINGS


@each_page
def test_commands_that_a_page_names_exist(page: Path) -> None:
    bench = main.commands["bench"]
    assert isinstance(bench, click.Group)
    text = page.read_text()
    assert set(re.findall(r"`millrace (?!bench )([a-z][a-z-]*)", text)) <= main.commands.keys()
    assert set(re.findall(r"`millrace bench ([a-z]+)", text)) <= bench.commands.keys()


def test_the_page_of_guarantees_names_every_invariant() -> None:
    text = (DOCS / "semantics.md").read_text()
    assert [found.name for found in INVARIANTS if f"`{found.name}`" not in text] == []
