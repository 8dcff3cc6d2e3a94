"""What the pages name is there: files, links, settings, commands, targets of make."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from jobs.store.monitoring.invariants import INVARIANTS
from tests.support.cases import each
from tests.support.command_line import COMMANDS, SETTINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "ops" / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
OUTSIDE_SETTINGS = {"MILLRACE_URL", "MILLRACE_API_KEY", "MILLRACE_SHARED"}
FORMER = {"worker undrain"}
"""Names that commands had, which the changelog tells."""
SOURCES = [
    f"/{path.relative_to(ROOT)}"
    for folder in ("api", "jobs", "migrations", "ops", "tests", "workers")
    for path in (ROOT / folder).rglob("*")
]

ROOMS = ["tutorial", "how-to", "reference", "explanation", "decisions", "runbook"]


def test_every_page_stands_in_a_room_of_about_a_dozen() -> None:
    """The four kinds of pages of Diátaxis, besides decisions and the runbook, a page an alert."""
    pages = [path.relative_to(DOCS) for path in DOCS.rglob("*.md")]
    assert {page.name for page in pages if len(page.parts) == 1} <= {"index.md", "map.md"}
    assert {page.parts[0] for page in pages if len(page.parts) > 1} <= {*ROOMS}
    rooms = Counter(str(page.parent) for page in pages if page.parts[0] != "runbook")
    assert [room for room, pages in rooms.items() if pages > 14] == []


def test_what_a_page_names_is_there() -> None:
    for page, case in each(PAGES, name=lambda page: page.relative_to(ROOT)):
        with case:
            assert list(_missing(page)) == []


def _missing(page: Path) -> Iterator[str]:
    text = page.read_text()
    files = re.findall(r"`((?:\w+/)*\w+\.(?:py|md))`", text)
    yield from (name for name in files if not _exists(name))
    links = re.findall(r"\]\((?!https?://)([^)#]+)", text)
    yield from (link for link in links if not (page.parent / link).exists())
    settings = re.findall(r"MILLRACE_[A-Z0-9_]*[A-Z0-9]", text)
    yield from {*settings} - SETTINGS - OUTSIDE_SETTINGS
    words = r"(?:`|^    )millrace ([a-z][a-z-]*(?: [a-z][a-z-]*)?)"
    for named in re.findall(words, text, re.MULTILINE):
        first = named.split()[0]
        name = named if isinstance(COMMANDS.get(first), click.Group) else first
        if name not in COMMANDS.keys() | FORMER:
            yield f"millrace {name}"


def _exists(name: str) -> bool:
    return (ROOT / name).exists() or any(path.endswith(f"/{name}") for path in SOURCES)


def test_no_exception_is_stale_and_every_invariant_is_named() -> None:
    assert not OUTSIDE_SETTINGS & SETTINGS
    assert not FORMER & COMMANDS.keys()
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in OUTSIDE_SETTINGS | FORMER if name not in text] == []
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
    if ROOT.joinpath(*parts).is_dir():
        return True
    for n in range(len(parts), 0, -1):
        module = ROOT.joinpath(*parts[:n])
        for source in (module.with_suffix(".py"), module / "__init__.py"):
            if source.exists():
                return set(parts[n:]) <= set(re.findall(r"\w+", source.read_text()))
    return False


def test_targets_of_make_that_pages_name_are_there() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in ("CONTRIBUTING.md", "README.md"):
        named = set(re.findall(r"\bmake ([a-z-]+)`", (ROOT / page).read_text()))
        assert named, page
        assert named <= targets, page
