"""What the pages name is there: files, links, settings, commands."""

import re
from collections import Counter
from pathlib import Path

import click
import pytest

from jobs.settings import Settings, is_secret
from jobs.store.invariants import INVARIANTS
from ops.cli.main import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "ops" / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
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

ROOMS = ["tutorial", "how-to", "reference", "explanation", "decisions", "runbook"]

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def test_every_page_stands_in_a_room_of_about_a_dozen() -> None:
    """The four kinds of pages of Diátaxis, besides decisions and the runbook, a page an alert."""
    pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
    assert {page.name for page in pages if len(page.parts) == 1} <= {"index.md", "map.md"}
    assert {page.parts[0] for page in pages if len(page.parts) > 1} <= {*ROOMS}
    rooms = Counter(str(page.parent) for page in pages if page.parts[0] != "runbook")
    assert [room for room, pages in rooms.items() if pages > 14] == []


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
    text = (DOCS / "reference" / "semantics.md").read_text()
    assert [found.name for found in INVARIANTS if f"`{found.name}`" not in text] == []


def test_files_and_modules_that_the_code_names_exist() -> None:
    """Docstrings, comments and texts: paths of Python files, and dotted names in backticks."""
    names = re.compile(
        r"(?<![\w/.])((?:api|jobs|migrations|ops|tests|workers)/[\w/]+\.py)"
        r"|`((?:api|jobs|migrations|ops|tests|workers)(?:\.\w+)+)`"
    )
    missing = {
        f"{path.relative_to(ROOT)}: {file or dotted}"
        for package in ("api", "jobs", "migrations", "ops", "tests", "workers")
        for path in (ROOT / package).rglob("*.py")
        for file, dotted in names.findall(path.read_text())
        if not (_exists(file) if file else _is_defined(dotted))
    }
    assert missing == set()


def _is_defined(dotted: str) -> bool:
    """True if the name is a module, or defined in one (a class's attribute included)."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:n])
        source = module.with_suffix(".py") if n > 1 else module / "__init__.py"
        if module.is_dir() and n == len(parts):
            return True
        if not source.exists():
            source = module / "__init__.py"
        if source.exists() and n < len(parts):
            words = set(re.findall(r"\w+", source.read_text()))
            return set(parts[n:]) <= words
        if source.exists():
            return True
    return False
