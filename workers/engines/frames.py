"""Frames of a model's own code in which an exception was raised, as text: no locals, bounded.

An exception keeps only the text: its frames would hold the memory of the failed launch.
"""

import sys
import traceback
from contextlib import suppress
from functools import lru_cache

MOST_BYTES = 8192
"""Longest text; the last frames are kept."""

_MOST_FRAMES = 40
_MOST_MESSAGE = 500  # characters of the exception's own message
_ATTRIBUTE = "_millrace_frames"
_OURS = ("workers/device/", "workers/engines/", "workers/process/")  # callers of a model's code


def keep(failure: BaseException, raised: BaseException) -> None:
    """Notes the frames of the exception that was raised on the one that is passed on for it."""
    if not of(failure):
        with suppress(Exception):  # of a class that takes no attributes, or is hard to write
            setattr(failure, _ATTRIBUTE, _text(raised))


def of(failure: object) -> str:
    """Returns the frames that were noted; "": none."""
    return getattr(failure, _ATTRIBUTE, "")


def _text(raised: BaseException) -> str:
    frames = traceback.extract_tb(raised.__traceback__, limit=-_MOST_FRAMES)
    while len(frames) > 1 and _shown(frames[0].filename).startswith(_OURS):
        del frames[0]
    lines = [
        f'File "{_shown(frame.filename)}", line {frame.lineno}, in {frame.name}\n'
        + (f"    {frame.line}\n" if frame.line else "")
        for frame in frames
    ]
    kind = type(raised).__name__
    end = f"{kind}: {str(raised)[:_MOST_MESSAGE]}".replace("\0", "")
    text = "".join(lines).replace("\0", "") + end
    raw = text.encode("utf-8", "replace")[-MOST_BYTES:]
    return raw.decode("utf-8", "ignore")


def _shown(path: str) -> str:
    """Returns a file's path below the place that it is imported from, else its name: what else
    there is on the machine is nobody's business."""
    root = next((root for root in _roots(tuple(sys.path)) if path.startswith(root)), "")
    return path[len(root) :] if root else path.rpartition("/")[2]


@lru_cache(maxsize=4)
def _roots(paths: tuple[str, ...]) -> list[str]:
    return sorted((f"{path.rstrip('/')}/" for path in paths if path), key=len, reverse=True)
