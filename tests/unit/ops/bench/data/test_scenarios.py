"""Every benchmark runs from the checkout alone: none reads a file beside it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import click

from ops.cli.commands.platform.bench import bench

ROOT = Path(__file__).parents[5]
FOLDER = ROOT / "ops" / "bench" / "data" / "folder.py"
FILES = sorted((ROOT / "ops" / "bench").rglob("*.py"))


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text()))


def reached(path: Path) -> Iterator[Path]:
    """Folders above a file that its `parents[n]` reach."""
    for node in nodes(path):
        match node:
            case ast.Subscript(ast.Attribute(attr="parents"), ast.Constant(value=int(above))):
                yield path.parents[above]


def strings(path: Path) -> set[str]:
    constants = (node.value for node in nodes(path) if isinstance(node, ast.Constant))
    return {value for value in constants if isinstance(value, str)}


def test_no_benchmark_reaches_out_of_the_checkout_or_asks_for_a_file() -> None:
    found = {(path, folder) for path in FILES for folder in reached(path)}
    assert found
    assert [path for path, folder in found if not folder.is_relative_to(ROOT)] == []
    assert [path for path in FILES if strings(path) & {"shared", "MILLRACE_SHARED"}] == [FOLDER]
    assert isinstance(bench, click.Group)
    options = [(name, one) for name, command in bench.commands.items() for one in command.params]
    assert [(name, one.name) for name, one in options if one.required] == []
