"""The docstrings of the standard library's public functions: real texts, on every machine."""

import ast
import inspect
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_NOT_LIBRARY = {"test", "tests", "idlelib", "lib2to3", "site-packages", "turtledemo", "ensurepip"}


@dataclass(frozen=True, slots=True)
class DocumentedFunction:
    """A function or method, as it is called ("json.loads"), and what it says of itself."""

    name: str
    text: str


def collect() -> list[DocumentedFunction]:
    """All of them, by name. Files are parsed, nothing is imported."""
    root = Path(sysconfig.get_path("stdlib"))
    found = {}
    for path in sorted(root.rglob("*.py")):
        module = path.relative_to(root).with_suffix("")
        if not _NOT_LIBRARY & set(module.parts) and not any(p[0] == "_" for p in module.parts[:1]):
            for each in _documented(path, ".".join(module.parts).removesuffix(".__init__")):
                found[each.name] = each
    return [found[name] for name in sorted(found)]


def _documented(path: Path, module: str) -> Iterator[DocumentedFunction]:
    try:
        tree = ast.parse(path.read_bytes())
    except SyntaxError:
        return
    yield from _of_body(tree.body, module)


def _of_body(body: list[ast.stmt], prefix: str) -> Iterator[DocumentedFunction]:
    for node in body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from _of_body(node.body, f"{prefix}.{node.name}")
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield DocumentedFunction(f"{prefix}.{node.name}", inspect.cleandoc(text))
