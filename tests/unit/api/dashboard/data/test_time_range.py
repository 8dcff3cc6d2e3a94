"""Time ranges of URLs."""

from datetime import UTC, datetime, timedelta

import pytest

from api.dashboard.data.time_range import PRESETS, TimeRange, parse_range
from jobs import clock
from jobs.errors import Invalid

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_changes_once_a_minute(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for second in (0, 17, 59):
        monkeypatch.setattr(clock, "now", lambda second=second: NOON + timedelta(seconds=second))
        found.add(parse_range(preset=name))
    [one] = found
    assert (one.start, one.end) == (NOON - PRESETS[name][1], None)
    assert one.pairs == (("range", name),)


def test_times_win_over_a_preset_and_without_parameters_nothing_is_asked_for() -> None:
    found = parse_range(preset="1h", since="2026-01-31", until="2026-01-31T12:00")
    assert found.pairs == (("since", "2026-01-31T00:00"), ("until", "2026-01-31T12:00"))
    assert (found.start, found.end) == (datetime(2026, 1, 31, tzinfo=UTC), NOON)
    assert parse_range() == TimeRange()
    assert parse_range().pairs == ()
    with pytest.raises(Invalid, match="write 2026-01-31T12:00"):
        parse_range(since="2026-02-31")
