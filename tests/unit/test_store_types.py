"""Rows of the database leave the store as dataclasses alone."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
RAW = {"RowMapping", "Row"}


def _public(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text())
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [node for node in nodes if not node.name.startswith("_")]


def _names(node: ast.AST | None) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)} if node else set()


def raw_signatures(folder: Path) -> list[str]:
    """Public functions whose annotations name a row of SQLAlchemy."""
    return [
        f"{path.name}: {function.name}"
        for path in sorted(folder.rglob("*.py"))
        for function in _public(path)
        if RAW & (_names(function.returns) | _names(function.args))
    ]


def raw_readers(root: Path) -> list[str]:
    """Files outside the store that take rows of SQLAlchemy."""
    found = []
    for package in ("api", "jobs", "workers", "ops"):
        for path in sorted((root / package).rglob("*.py")):
            if path.is_relative_to(root / "jobs" / "store"):
                continue
            text = path.read_text()
            if "RowMapping" in text or ".mappings()" in text:
                found.append(str(path.relative_to(root)))
    return found


def test_no_public_function_of_the_store_gives_or_takes_a_raw_row() -> None:
    assert raw_signatures(ROOT / "jobs" / "store") == []


def test_no_file_outside_the_store_reads_raw_rows() -> None:
    assert raw_readers(ROOT) == []


def test_a_raw_row_is_found(tmp_path: Path) -> None:
    store = tmp_path / "jobs" / "store"
    store.mkdir(parents=True)
    name = "b.py"
    (store / "a.py").write_text("def get(tx: Tx) -> list[RowMapping]: ...\n")
    (tmp_path / "jobs" / name).write_text("rows = tx.execute(query).mappings()\n")
    assert raw_signatures(store) == ["a.py: get"]
    assert raw_readers(tmp_path) == [f"jobs/{name}"]
