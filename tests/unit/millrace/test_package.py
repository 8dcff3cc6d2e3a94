"""The package `millrace`: what it imports, that both clients are alike, and how it is installed."""

import ast
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

import millrace
from ops.generate_sync_client import generated

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "ops" / "top-level" / "millrace"
MILLRACE = "import millrace, sys; from millrace.webhooks import verify; "
MILLRACE += "millrace.Client('http://x'); print(*sys.modules)"
FOREIGN = {"fastapi", "jobs", "numpy", "ops", "orjson", "pydantic", "sqlalchemy", "torch",
           "tqdm", "yaml"}  # fmt: skip
BUILD = """
import sys
import sysconfig
from setuptools import build_meta
print(getattr(build_meta, sys.argv[1])(sys.argv[2]))
"""


def test_the_synchronous_client_is_generated_from_the_asynchronous_one() -> None:
    differing = [path.name for path, text in generated().items() if path.read_text() != text]
    assert differing == [], "run `python ops/generate_sync_client.py`"
    assert {path.name for path in generated()} == {p.name for p in (CLIENT / "sync").glob("*.py")}


def test_modules_import_httpx_and_the_standard_library_and_others_for_tables() -> None:
    found = set()
    for path in CLIENT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add((node.module or "").partition(".")[0])
    assert found - set(sys.stdlib_module_names) == {"httpx", "millrace", "numpy", "pyarrow"}
    assert [name for name in millrace.__all__ if not hasattr(millrace, name)] == []


def modules(folder: Path) -> set[str]:
    """Modules that are loaded by `import millrace`, which is found in this folder."""
    installed = str(Path(httpx.__file__).parents[1])  # without the millrace that is installed there
    code = f"""
import site, sys
site.addsitedir({str(folder)!r})
sys.path.append({installed!r})
{MILLRACE}
"""
    done = subprocess.run(
        [sys.executable, "-S", "-c", code], cwd=folder, env={}, check=True,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return set(done.stdout.split())


@pytest.mark.parametrize("hook", ["build_wheel", "build_editable"])
def test_the_client_is_installed_without_the_platforms_needs(hook: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("api", "jobs", "migrations", "ops", "workers", "pyproject.toml", "README.md",
                 "LICENSE"):  # fmt: skip
        (source / name).symlink_to(ROOT / name)
    done = subprocess.run(
        [sys.executable, "-c", BUILD, hook, str(tmp_path)], cwd=source, check=True,
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    site = tmp_path / "site"
    zipfile.ZipFile(tmp_path / done.stdout.split()[-1]).extractall(site)
    loaded = modules(site)
    assert "millrace.sync.client" in loaded
    assert {"millrace.aio.client", "httpx"} <= loaded
    assert loaded & FOREIGN == set()
    if hook == "build_wheel":
        assert (site / "millrace" / "py.typed").exists()
        assert (site / "api" / "dashboard" / "templates").is_dir()
