"""One version everywhere: that of the newest release in CHANGELOG.md."""

import re
import tomllib
from pathlib import Path

from tests.support.cases import each

ROOT = Path(__file__).parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)
_RELEASE = re.compile(r"(\d+\.\d+\.\d+) - (\d{4}-\d\d-\d\d)")
ELSEWHERE = {
    "ops/deploy/Dockerfile": r'image\.version="(.+?)"',
    "ops/deploy/kubernetes/overlays/cpu/kustomization.yaml": r"newTag: (.+)-(?:cpu|cuda)",
    "ops/deploy/kubernetes/overlays/gpu/kustomization.yaml": r"newTag: (.+)-(?:cpu|cuda)",
    "ops/docs/how-to/install.md": r"dist/millrace-(\d.*?)-py3",
}
"""Files that repeat the version, and how they write it."""


def sections() -> dict[str, str]:
    """Texts of the changelog's sections, by their headings, newest first."""
    _, *parts = _HEADING.split((ROOT / "CHANGELOG.md").read_text())
    return dict(zip(parts[::2], parts[1::2], strict=True))


def releases() -> list[tuple[str, str]]:
    """Versions and dates of the released sections."""
    matches = [_RELEASE.fullmatch(heading) for heading in list(sections())[1:]]
    return [(match[1], match[2]) if match else ("no version", "no date") for match in matches]


def test_the_version_is_that_of_the_newest_release_everywhere() -> None:
    assert next(iter(sections())) == "Unreleased"
    assert releases()[0][0] == VERSION
    for name, case in each(ELSEWHERE):
        with case:
            assert set(re.findall(ELSEWHERE[name], (ROOT / name).read_text())) == {VERSION}


def test_releases_stand_newest_first_with_their_dates_and_tell_how_to_upgrade() -> None:
    numbers = [tuple(map(int, version.split("."))) for version, _ in releases()]
    dates = [date for _, date in releases()]
    assert numbers == sorted(numbers, reverse=True)
    assert dates == sorted(dates, reverse=True)
    for (version, _), text in zip(releases(), sections().values(), strict=False):
        assert f"### Upgrading from {version}\n" in text
