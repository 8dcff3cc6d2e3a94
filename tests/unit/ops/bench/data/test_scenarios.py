"""Every benchmark runs from the checkout alone: none reads a file beside it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import click

from ops.cli.commands.platform.bench import bench

ROOT = Path(__file__).parents[5]
FOLDER = ROOT / "ops" / "bench" / "data" / "folder.py"
FILES = sorted((ROOT / "ops" / "bench").rglob("*.py"))


def reached(path: Path) -> Iterator[Path]:
    """Folders above a file that its `parents[n]` reach."""
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Attribute)
            and node.value.attr == "parents"
            and isinstance(node.slice, ast.Constant)
        ):
            yield path.parents[int(str(node.slice.value))]


def strings(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_no_benchmark_reaches_out_of_the_checkout() -> None:
    outside = {
        str(path): str(folder)
        for path in FILES
        for folder in reached(path)
        if not folder.is_relative_to(ROOT)
    }
    assert outside == {}


def test_one_file_alone_knows_of_a_folder_of_real_data() -> None:
    assert [path for path in FILES if strings(path) & {"shared", "MILLRACE_SHARED"}] == [FOLDER]


def test_no_benchmark_asks_for_a_file() -> None:
    assert isinstance(bench, click.Group)
    required = {
        f"{name} {parameter.name}"
        for name, command in bench.commands.items()
        for parameter in command.params
        if parameter.required
    }
    assert required == set()
