"""Processes of ours find our packages, whatever PYTHONPATH and the working directory hold."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jobs.processes import packages

pytestmark = pytest.mark.heavy

NAMED = [f"{name}.py" for name in packages.NAMES] + [
    f"{name}/__init__.py" for name in packages.NAMES
]
TOLD = "raise SystemExit('this is not ours')\n"


@pytest.fixture(params=NAMED)
def hiding(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Folder with a module that has a name of ours, and one that hasn't."""
    (tmp_path / request.param).parent.mkdir(exist_ok=True)
    (tmp_path / request.param).write_text(TOLD)
    (tmp_path / "users.py").write_text(
        "import api, jobs, migrations, millrace, ops, workers\nprint(jobs.__file__)"
    )
    return tmp_path


def run(folder: Path, pythonpath: Path) -> str:
    done = subprocess.run(
        packages.command("users"), cwd=folder, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": str(pythonpath)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_process_finds_them_before_the_working_directory_and_pythonpath(hiding: Path) -> None:
    ours = str(Path(packages.__file__).parents[1] / "__init__.py")
    assert run(hiding, Path()) == ours
    (hiding / "elsewhere").mkdir()
    assert run(hiding / "elsewhere", hiding) == ours


def test_an_import_path_that_hides_nothing_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "inputs.jsonl").touch()
    packages.find_first()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = list(sys.path)
    packages.find_first()
    assert sys.path == before
    (tmp_path / "jobs" / "reader.py").touch()
    packages.find_first()
    assert sys.path == [*before[1:], str(tmp_path)]
