"""The newest release, from the history of a repository: the commit that dated its section of
CHANGELOG.md."""

import re
import subprocess
from pathlib import Path

_RELEASED = re.compile(r"^## \d+\.\d+\.\d+ - \d{4}-\d\d-\d\d$", re.MULTILINE)


class NoHistory(Exception):
    """Reports that the commit of a release can't be known here."""


def newest(repository: Path) -> str:
    """Returns the commit of the newest release. Raises NoHistory."""
    heading = _RELEASED.search((repository / "CHANGELOG.md").read_text())
    if heading is None:
        raise NoHistory("CHANGELOG.md has no release")
    added = ["log", "-1", "--format=%H %P", "-S", heading[0], "--", "CHANGELOG.md"]
    commit, *parents = _git(repository, *added).split() or [""]
    # The first commit of a history that was cut off seems to add all that it holds.
    if not parents:
        raise NoHistory(f"no commit in this history added “{heading[0]}”")
    return commit


def check_out(repository: Path, commit: str, folder: Path) -> None:
    """Writes the files of a commit into a folder."""
    archive = folder.with_suffix(".tar")
    _git(repository, "archive", "-o", str(archive), commit)
    folder.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)


def _git(repository: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", repository, *arguments], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        raise NoHistory("git is missing") from None
    except subprocess.CalledProcessError as error:
        raise NoHistory(error.stderr.strip()) from error
    return done.stdout
