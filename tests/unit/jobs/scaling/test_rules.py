"""Declared rules and schedules, as people write them."""

from datetime import UTC, datetime

import pytest

from jobs.scaling import rules
from jobs.scaling.schedules import Schedule, parse
from jobs.scaling.signals import Signals
from tests.support.cases import each


def test_a_rule_is_read_and_compares_with_the_signal() -> None:
    cases = [
        ("queue above 500 for 30 s: +3", "queue", 500, 30, 3),
        ("used above 85 % for 5 min: +1", "used", 0.85, 300, 1),
        ("used below 40% for 15min: −1", "used", 0.4, 900, -1),
        ("wait above 200 ms for 10 s: +2", "wait_s", 0.2, 10, 2),
        ("drain above 2 h for 1 min: +1", "drain_s", 7200, 60, 1),
    ]
    for (text, field, bound, for_s, add), case in each(cases):
        with case:
            rule = rules.parse(text)
            assert (rule.field, rule.bound, rule.for_s, rule.add) == (field, bound, for_s, add)
    rule = rules.parse("used above 85 % for 5 min: +1")
    assert rule.holds(Signals(0.0, ready=2, offered=1.71))
    assert not rule.holds(Signals(0.0, ready=2, offered=1.7))


def test_a_rule_that_is_wrong_says_how() -> None:
    cases = [
        ("queue over 500: +3", "write it as in"),
        ("load above 5 for 30 s: +3", "load is no signal"),
        ("queue above 5 % for 30 s: +3", "the bound of queue has no unit"),
        ("used above 5 for 30 s: +3", "the bound of used has %"),
        ("queue above 5 for 30 s: +0", "adds nothing"),
    ]
    for (text, wrong), case in each(cases):
        with case, pytest.raises(ValueError, match=wrong):
            rules.parse(text)


def test_a_schedule_is_due() -> None:
    cases = [
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T08:58", False),
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T08:59", True),  # a Thursday
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T16:59", True),
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-26T17:00", False),
        (Schedule("0 9 * * 1-5", 3, 8), "2026-11-28T10:00", False),
        (Schedule("0 9 * * 7", 3, 8), "2026-11-29T10:00", True),
        (Schedule("*/20 * * * *", 3, 0.1), "2026-11-28T10:45", True),
        (Schedule("*/20 * * * *", 3, 0.1), "2026-11-28T10:50", False),
        (Schedule("0 9 13 * 5", 3, 1), "2026-11-13T09:30", True),
        (Schedule("0 9 13 * 5", 3, 1), "2026-11-20T09:30", True),  # either day, as in cron
        (Schedule("0 9 * * *", 3, 1, "Europe/Berlin"), "2026-11-20T08:30", True),
    ]
    for (schedule, at, due), case in each(cases):
        with case:
            at_s = datetime.fromisoformat(at).replace(tzinfo=UTC).timestamp()
            assert schedule.is_due(at_s, 60.0) is due


def test_a_schedule_that_is_wrong_says_so() -> None:
    for cron, case in each(["* * * *", "60 * * * *", "a * * * *", "5-1 * * * *", "*/0 * * * *"]):
        with case, pytest.raises(ValueError, match=r"field|within|no number"):
            parse(cron)
