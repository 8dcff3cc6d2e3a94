"""Pages of the repository that stand outside `ops/docs`: each has a page on the site."""

import os
import re
from pathlib import Path, PurePosixPath

_ROOT = Path(__file__).parents[2]
_DOCS = PurePosixPath("ops/docs")
_LINK = re.compile(r"\]\((?!\w+:|#|/)([^)#]+)")
OUTSIDE = {
    "readme.md": "README.md",
    "changes.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
}
"""Paths in the repository, by their pages on the site."""

_INSIDE = {path: name for name, path in OUTSIDE.items()}


def page_inside(path: str) -> str:
    """Returns the text of a page, with links as they are from the top of the site."""

    def inside(link: re.Match[str]) -> str:
        target = link[1].removeprefix(f"{_DOCS}/")
        return f"]({_INSIDE.get(target, target)}"

    return _LINK.sub(inside, (_ROOT / path).read_text())


def with_links_inside(markdown: str, page: str) -> str:
    """Returns a page's text with its links to those pages. page: its path in `ops/docs`."""
    folder = (_DOCS / page).parent

    def inside(link: re.Match[str]) -> str:
        name = _INSIDE.get(os.path.normpath(folder / link[1]))
        return f"]({os.path.relpath(name, PurePosixPath(page).parent)}" if name else link[0]

    return _LINK.sub(inside, markdown)
