"""The version: of the newest tag, where there is one."""

import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest

from tests.packaging.kit import ROOT


def git(folder: Path, *words: str) -> None:
    identity = [("-c", f"{key}=x@example.org") for key in ("user.name", "user.email")]
    subprocess.run(["git", *chain(*identity), *words], cwd=folder, check=True, capture_output=True)


def version(folder: Path) -> str:
    """The version that a wheel would get there."""
    command = [sys.executable, "-m", "setuptools_scm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """Sources without git."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    return folder


def commit(folder: Path) -> None:
    if not (folder / ".git").exists():
        git(folder, "init", "-q")
    git(folder, "add", "pyproject.toml")
    git(folder, "commit", "-q", "--allow-empty", "-m", "a change")


def test_sources_without_git_have_the_fallback(sources: Path) -> None:
    assert version(sources) == "0.1.0"


def test_a_commit_without_tags_counts_from_the_fallback(sources: Path) -> None:
    commit(sources)
    assert version(sources).startswith("0.1.1.dev1+g")


def test_a_tag_is_the_version_of_its_commit_and_the_next_is_of_the_commits_after(
    sources: Path,
) -> None:
    commit(sources)
    git(sources, "tag", "v1.4.0")
    assert version(sources) == "1.4.0"
    commit(sources)
    assert version(sources).startswith("1.4.1.dev1+g")


def test_a_shallow_clone_without_tags_has_a_version(sources: Path, tmp_path: Path) -> None:
    commit(sources)
    git(sources, "tag", "v1.4.0")
    commit(sources)
    clone = ["clone", "-q", "--depth", "1", "--no-tags", sources.as_uri(), "shallow"]
    git(tmp_path, *clone)
    assert version(tmp_path / "shallow").startswith("0.1.1.dev1+g")
