"""Limits that keep the code readable: sizes of files, functions and folders, and docstrings."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.cases import each

ROOT = Path(__file__).parents[2]
PACKAGES = ("api", "jobs", "migrations", "ops", "workers")
MOST_FILES = 12
"""Python files side by side in a folder."""
MOST_LINES = 400
"""Of a file."""
LONGEST_FUNCTION = 60
"""Lines of a function."""
LEAST_DOCUMENTED = 0.95
"""Share of public definitions with a docstring, by package."""
#: Folders with one file for each of many things of a kind.
WIDE = {"ops/bench/scenarios", "workers/engines", "migrations", "migrations/versions"}
FIRST_WORDS = {"What", "Whether", "Who", "As", "Of", "Where"}
"""A docstring begins with a noun or a verb, not with these."""

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
TREES = {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in FILES}


def test_a_folder_holds_a_dozen_files() -> None:
    folders = {path.parent for path in FILES}
    crowded = {
        str(folder.relative_to(ROOT)): len(found)
        for folder in folders
        if len(found := [path for path in folder.glob("*.py") if path.name != "__init__.py"])
        > MOST_FILES
    }
    assert crowded.keys() <= WIDE


def test_a_file_holds_one_idea() -> None:
    lines = {path.relative_to(ROOT): path.read_text().count("\n") for path in FILES}
    long = {str(path): n for path, n in lines.items() if n > MOST_LINES}
    assert {path for path in long if not path.startswith("api/schemas/")} == set()


def test_a_function_holds_one_thought() -> None:
    long = {
        f"{path}:{node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= LONGEST_FUNCTION
        and not path.startswith("migrations/")
    }
    assert long == set()


def test_docstrings_begin_with_a_noun_or_a_verb() -> None:
    found = {
        f"{path}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, Documented)
        and (text := ast.get_docstring(node))
        and text.split()[0].strip(",:;`") in FIRST_WORDS
    }
    assert found == set()


def test_public_definitions_have_docstrings() -> None:
    for package, case in each(name for name in PACKAGES if name != "migrations"):
        with case:
            trees = [tree for path, tree in TREES.items() if path.startswith(f"{package}/")]
            public = [node for tree in trees for node in _public(tree)]
            documented = [node for node in public if ast.get_docstring(node)]
            assert len(documented) >= LEAST_DOCUMENTED * len(public)


def _public(body: ast.Module | ast.ClassDef) -> Iterator[Documented]:
    """Classes, functions and methods whose names don't begin with an underscore."""
    for node in body.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if node.name.startswith("_"):
                continue
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node)
