"""Navigation: rooms in the order in which a reader needs them, their pages by title."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_ROOMS = {
    ".": "Home",
    "tutorial": "Tutorial",
    "how-to": "How to",
    "reference": "Reference",
    "explanation": "Explanation",
    "decisions": "Decisions",
    "runbook": "Runbook",
}

_NAMES = {"readme.md": "README", "reference/api": "HTTP API"}

Entry = str | dict[str, Any]


def navigation(pages: Mapping[str, str]) -> list[Entry]:
    """Returns the value of `nav`: a tab for each room. pages: texts, by their paths.

    A page in another folder is left out, which MkDocs then says.
    """
    return [{title: _entries(room, pages)} for room, title in _ROOMS.items()]


def _entries(folder: str, pages: Mapping[str, str]) -> list[Entry]:
    """Returns the pages of a folder, its index first, and then those of the folders in it."""
    paths = [path for path in pages if str(PurePosixPath(path).parent) == folder]
    paths.sort(key=lambda path: (not path.endswith("index.md"), _title(pages[path])))
    here: list[Entry] = [{_NAMES[path]: path} if path in _NAMES else path for path in paths]
    below = sorted({str(parent) for path in pages for parent in PurePosixPath(path).parents
                    if folder != "." and str(parent.parent) == folder})  # fmt: skip
    return [*here, *({_NAMES.get(one, _name(one)): _entries(one, pages)} for one in below)]


def _name(folder: str) -> str:
    return PurePosixPath(folder).name.capitalize()


def _title(text: str) -> str:
    return text.partition("\n")[0].strip("# `").lower()
