"""An installed millrace where a user's files have the names of its packages."""

from pathlib import Path

import pytest

from jobs.processes import packages
from tests.packaging.kit import Environment, Wheel
from tests.packaging.running import Running
from tests.support.models.entries import model

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(300)]

MODELS = (
    model("echo", "echo")
    + model("shout", "function", function="words:shout", samples=["a"])
    + model("hidden", "function", function="jobs:shout", samples=["a"])
)
SHOUT = "def shout(texts): return [text.upper() for text in texts]\n"


def fill(folder: Path) -> None:
    """Lays out modules with the names of ours, and a models file with its code."""
    for name in set(packages.NAMES) - {"jobs"}:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('this is not ours')\n")
    (folder / "jobs.py").write_text(SHOUT)
    (folder / "words.py").write_text(SHOUT)
    (folder / "models.toml").write_text(MODELS)


def test_the_platform_runs_beside_and_behind_modules_of_its_names(
    wheel: Wheel, tmp_path: Path
) -> None:
    environment = Environment(tmp_path / "venv", wheel, "embedded")
    home = environment.home
    fill(home)
    hiding = {"PYTHONPATH": str(home), "MILLRACE_MODELS": str(home / "models.toml")}
    running = Running(environment, tmp_path / "home", **hiding)
    said = f"{home / 'jobs.py'} has the name of Millrace's package 'jobs'"
    assert said in running.cli("check", "--json", status=1)
    assert said in running.cli("model", "check", "hidden", "--json", status=1)
    with running.up(home / "up.log"):
        assert running.job("echo", tmp_path) == ["one", "two"]
        assert running.job("shout", tmp_path) == ["ONE", "TWO"]
        assert said in running.cli("models")
