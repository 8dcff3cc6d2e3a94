"""Time of each thread, which only its own sleeps make pass: launches take what their models say."""

import threading

import pytest

from jobs import clock


class ThreadClock(threading.local):
    """Takes the place of the product's monotonic clock, seconds."""

    now_s = 0.0

    def sleep(self, seconds: float) -> None:
        """Lets time pass for this thread, at once."""
        self.now_s += seconds


def install(monkeypatch: pytest.MonkeyPatch) -> ThreadClock:
    """Makes it the clock until the end of the test."""
    made = ThreadClock()
    monkeypatch.setattr(clock, "monotonic", lambda: made.now_s)
    monkeypatch.setattr(clock, "sleep", made.sleep)
    return made
