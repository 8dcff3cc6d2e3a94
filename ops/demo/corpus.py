"""Summaries of the standard library's public functions."""

import ast
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# Tests, programs, window toolkits, and what Python 3.12 has no more.
_LEFT_OUT = {"test", "tests", "idlelib", "turtledemo", "ensurepip", "pydoc", "tkinter", "turtle"}
_LEFT_OUT |= {"distutils", "lib2to3", "site-packages"}


@dataclass(frozen=True, slots=True)
class DocumentedFunction:
    """Public function or method."""

    name: str  #: with its module, such as json.loads
    text: str  #: first paragraph of its docstring


def collect() -> list[DocumentedFunction]:
    """Collects all of them, sorted by name. Parses files and imports none."""
    root = Path(sysconfig.get_path("stdlib"))
    functions = {}
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).with_suffix("")
        if not _LEFT_OUT & set(module.parts) and not module.parts[0].startswith("_"):
            for each in _documented(path, ".".join(module.parts).removesuffix(".__init__")):
                functions[each.name] = each
    return [functions[name] for name in sorted(functions)]


def _documented(path: Path, module: str) -> Iterator[DocumentedFunction]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return
    yield from _functions(tree.body, module)


def _functions(body: list[ast.stmt], prefix: str) -> Iterator[DocumentedFunction]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _functions(node.body, f"{prefix}.{node.name}")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            summary = (ast.get_docstring(node) or "").partition("\n\n")[0]
            if summary:
                yield DocumentedFunction(f"{prefix}.{node.name}", summary)
