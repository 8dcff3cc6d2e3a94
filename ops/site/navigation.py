"""Navigation: rooms in the order in which a reader needs them, their pages by title."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

_ROOMS = {
    ".": "Home",
    "tutorial": "Tutorial",
    "how-to": "How to",
    "how-to/clients": "Clients",
    "how-to/models": "Models",
    "how-to/operations": "Operations",
    "reference": "Reference",
    "reference/api": "HTTP API",
    "explanation": "Explanation",
    "decisions": "Decisions",
    "runbook": "Runbook",
}

_NAMES = {"readme.md": "README"}  # that page has the title of the site

Entry = str | dict[str, Any]


def navigation(pages: Mapping[str, str]) -> list[Entry]:
    """Returns the value of `nav`: a tab for each room. pages: texts, by their paths.

    A page in a folder that is no room is left out, which MkDocs then says.
    """
    return [_section(room, pages) for room in _ROOMS if "/" not in room]


def _section(room: str, pages: Mapping[str, str]) -> Entry:
    paths = [path for path in pages if str(PurePosixPath(path).parent) == room]
    paths.sort(key=lambda path: (not path.endswith("index.md"), _title(pages[path])))
    here: list[Entry] = [{_NAMES[path]: path} if path in _NAMES else path for path in paths]
    below = [_section(one, pages) for one in _ROOMS if one.startswith(f"{room}/")]
    return {_ROOMS[room]: [*here, *below]}


def _title(text: str) -> str:
    return text.partition("\n")[0].strip("# `").lower()
