"""Release that a rolling upgrade begins with: found in the history of a small repository."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.upgrade import release

_NO_GIT = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
pytestmark = [pytest.mark.heavy, _NO_GIT]

_OLD, _NEW = "## 0.1.0 - 2026-01-01\n", "## 0.2.0 - 2026-02-01\n"
_WHO = {f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    return subprocess.run(
        command, env={**os.environ, **_WHO}, stdout=subprocess.PIPE, text=True, check=True
    ).stdout.strip()


def commit(folder: Path, changelog: str, code: str) -> str:
    (folder / "CHANGELOG.md").write_text(changelog)
    (folder / "code.py").write_text(code)
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", code)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    made = tmp_path / "repository"
    git(tmp_path, "init", "-q", str(made))
    commit(made, f"## Unreleased\n\n{_OLD}", "before")
    return made


def test_the_newest_release_is_the_commit_that_dated_its_section(
    repository: Path, tmp_path: Path
) -> None:
    released = commit(repository, f"## Unreleased\n\n{_NEW}\n{_OLD}", "released")
    later = f"## Unreleased\n\nMore.\n\n{_NEW}\nMended.\n\n{_OLD}"
    commit(repository, later, "later")
    assert release.newest(repository) == released
    release.check_out(repository, released, tmp_path / "old")
    assert (tmp_path / "old" / "code.py").read_text() == "released"


def test_a_shallow_clone_or_a_folder_without_git_has_no_release(
    repository: Path, tmp_path: Path
) -> None:
    commit(repository, f"{_NEW}\n{_OLD}", "released")
    commit(repository, f"## Unreleased\n\n{_NEW}\n{_OLD}", "later")
    git(tmp_path, "clone", "-q", "--depth", "1", repository.as_uri(), "shallow")
    with pytest.raises(release.NoHistory, match=r"no commit in this history added “## 0\.2\.0"):
        release.newest(tmp_path / "shallow")
    tarball = tmp_path / "tarball"
    tarball.mkdir()
    (tarball / "CHANGELOG.md").write_text(_NEW)
    with pytest.raises(release.NoHistory, match=r"(?i)git repository"):
        release.newest(tarball)
    (tarball / "CHANGELOG.md").write_text("## Unreleased\n")
    with pytest.raises(release.NoHistory, match="has no release"):
        release.newest(tarball)
