"""Progress bar of a job: items, rate, time left, failures."""

import shutil
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from millrace import clock

_EVERY_S, _EVERY_LINE_S = 0.1, 5.0  # on a terminal, where a line replaces the last one; in a log
_MOST_CELLS = 40
_EIGHTHS = " ▏▎▍▌▋▊▉"


class Progress:
    """Progress that nobody sees."""

    def show(self, job: Mapping[str, Any]) -> None:
        """Shows the counts of a job."""

    def read(self, results: int, failed: int) -> None:
        """Counts results that were read."""

    def away(self) -> None:
        """Shows that the api doesn't answer."""

    def close(self, note: str = "") -> None:
        """Ends the bar. note: line below it."""


def progress_of(wanted: bool | Progress | None, job: Mapping[str, Any]) -> Progress:
    """Returns the bar of a job. wanted: None: on a terminal alone."""
    if isinstance(wanted, Progress):
        return wanted
    if wanted is None:
        wanted = sys.stderr.isatty()
    return Bar(job) if wanted else Progress()


class Bar(Progress):
    """Bar on standard error; where that is no terminal, a line every few seconds."""

    def __init__(self, job: Mapping[str, Any], stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._on_terminal = self._stream.isatty()
        self._label = str(job["model"])
        self._total = int(job["counts"]["total"])
        self._done = self._begun_with = _ended(job["counts"])
        self._failed, self._note = 0, ""
        self._since_s = clock.monotonic()
        self._next_s = 0.0
        self._draw()

    def show(self, job: Mapping[str, Any]) -> None:
        """Shows the counts of a job, and an uncommon state."""
        counts, state = job["counts"], job["state"]
        self._total, self._done = int(counts["total"]), _ended(counts)
        self._failed = int(counts["failed"])
        self._note = "" if state in ("queued", "running", "completed") else state
        self._draw()

    def read(self, results: int, failed: int) -> None:
        """Counts results that were read."""
        self._done += results
        self._failed += failed
        self._note = ""
        self._draw()

    def away(self) -> None:
        """Shows that the api doesn't answer."""
        self._note = "the api is away"
        self._draw()

    def close(self, note: str = "") -> None:
        """Draws the bar for the last time, and a line below it."""
        self._next_s = 0.0
        self._draw()
        end = "\n" if self._on_terminal else ""
        print(end + note if note else end, end="\n" if note else "", file=self._stream, flush=True)

    def _draw(self) -> None:
        now_s = clock.monotonic()
        if now_s < self._next_s:
            return
        self._next_s = now_s + (_EVERY_S if self._on_terminal else _EVERY_LINE_S)
        before, after = ("\r", "\x1b[K") if self._on_terminal else ("", "\n")
        print(f"{before}{self._line(now_s - self._since_s)}{after}", end="", file=self._stream,
              flush=True)  # fmt: skip

    def _line(self, took_s: float) -> str:
        new = self._done - self._begun_with
        rate = new / took_s if took_s > 0 else 0.0
        left = (self._total - self._done) / rate if rate and self._total else None
        times = f"{_clock(took_s)}<{'?' if left is None else _clock(left)}"
        failed = f"{self._failed} failed" if self._failed else ""
        notes = ", ".join(filter(None, (f"{rate:.2f} items/s", self._note, failed)))
        counts = f"{self._done}/{self._total or '?'} [{times}, {notes}]"
        if not self._total:
            return f"{self._label}: {counts}"
        share = min(1.0, self._done / self._total)
        head = f"{self._label}: {share:4.0%}"
        room = shutil.get_terminal_size().columns - len(head) - len(counts) - 4
        return f"{head}|{_cells(share, max(1, min(room, _MOST_CELLS)))}| {counts}"


def _ended(counts: Mapping[str, Any]) -> int:
    return int(counts["total"] - counts["pending"] - counts["running"])


def _cells(share: float, width: int) -> str:
    """Draws a share, in eighths of a cell."""
    full, part = divmod(int(share * width * 8), 8)
    cells = "█" * full + (_EIGHTHS[part] if full < width else "")
    return cells.ljust(width)


def _clock(seconds: float) -> str:
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes:02}:{s:02}"
