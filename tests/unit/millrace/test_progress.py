"""Bars: on a terminal one line that changes, elsewhere a line now and then."""

import io
import sys
from typing import Any

import pytest

from millrace import clock
from millrace.progress import Bar, Progress, progress_of


def job(state: str = "running", **counts: int) -> dict[str, Any]:
    whole = {"total": 4, "pending": 0, "running": 0, "failed": 0} | counts
    return {"model": "m", "state": state, "counts": whole}


class Terminal(io.StringIO):
    """A terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(clock, "monotonic", lambda: now[0])
    return now


def test_it_shows_share_counts_rate_time_left_and_failures(time: list[float]) -> None:
    terminal = Terminal()
    bar = Bar(job(pending=4), terminal)
    time[0] += 2
    bar.show(job("paused", pending=2, failed=1))
    assert terminal.getvalue().startswith("\rm:   0%|  ")
    last = terminal.getvalue().split("\r")[-1]
    assert last.startswith("m:  50%|███")
    assert "| 2/4 [00:02<00:02, 1.00 items/s, paused, 1 failed]\x1b[K" in last
    time[0] += 2
    bar.read(2, 1)
    bar.close("come back")
    assert "100%" in terminal.getvalue()
    assert terminal.getvalue().endswith(
        "4/4 [00:04<00:00, 1.00 items/s, 2 failed]\x1b[K\ncome back\n"
    )


def test_it_counts_from_where_it_began_and_in_a_log_has_a_line_every_few_seconds(
    time: list[float],
) -> None:
    log = io.StringIO()
    bar = Bar(job(pending=2), log)
    time[0] += 1
    bar.show(job(pending=1))
    bar.close()
    assert log.getvalue().splitlines()[-1].endswith("3/4 [00:01<00:01, 1.00 items/s]")
    log = io.StringIO()
    Bar(job("validating", total=0), log)
    assert log.getvalue() == "m: 0/? [00:00<?, 0.00 items/s]\n"
    log = io.StringIO()
    bar = Bar(job(pending=4), log)
    for _ in range(40):
        time[0] += 0.3
        bar.away()
    assert 3 <= log.getvalue().count("\n") <= 4
    assert "the api is away" in log.getvalue()
    assert "\r" not in log.getvalue()


def test_by_default_there_is_one_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert type(progress_of(None, job())) is Progress
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert type(progress_of(None, job())) is Bar
    assert type(progress_of(False, job())) is Progress
    own = Progress()
    assert progress_of(own, job()) is own
