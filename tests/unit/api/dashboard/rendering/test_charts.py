"""Charts are well-formed, say their figures in words, and take no name for markup."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from api.dashboard.rendering import charts
from tests.support.cases import each

NASTY = "<script>\"&'"
HOURS = [datetime(2026, 5, 1, hour, tzinfo=UTC) for hour in range(24)]
DRAWN = {
    "spark": lambda: charts.spark([1.0, None, 3.0, 2.0], NASTY),
    "no spark": lambda: charts.spark([], "nothing"),
    "unknown spark": lambda: charts.spark([None, None], "nothing"),
    "meter": lambda: charts.meter(0.5, NASTY),
    "no meter": lambda: charts.meter(None, "unknown"),
    "stack": lambda: charts.stack({NASTY: 1.0, "b": 0.0}, NASTY),
    "no stack": lambda: charts.stack({}, "nothing"),
    "legend": lambda: charts.legend({NASTY: NASTY}),
    "histogram": lambda: charts.histogram({NASTY: 3.0, "2": 0.0}, NASTY, NASTY),
    "no histogram": lambda: charts.histogram({}, "nothing", "x"),
    "curve": lambda: charts.curve({NASTY: [(1, 2.0), (8, 9.0)]}, NASTY, "x", "ms", aim=5),
    "interval": lambda: charts.interval((-0.1, 0.0, 0.1), NASTY, {NASTY: 0.5}),
    "over time": lambda: charts.over_time(
        {NASTY: [1.0, None, *[2.0] * 20, None, 3.0], "none": [None] * 24}, HOURS, NASTY, NASTY
    ),
    "no time": lambda: charts.over_time({}, [], "nothing", "ms"),
    "no curve": lambda: charts.curve({}, "nothing", "x", "ms"),
    "flat curve": lambda: charts.curve({"a": [(0, 0.0)]}, "zero", "x", "ms"),
    "tiny curve": lambda: charts.curve({"a": [(1, 1e-7), (2, 3e-7)]}, "tiny", "x", "ms"),
}


def test_a_chart_is_well_formed_and_has_words() -> None:
    for name, case in each(DRAWN):
        with case:
            drawn = DRAWN[name]()
            assert isinstance(drawn, Markup)
            found = ElementTree.fromstring(drawn)
            if found.tag == "svg":
                assert found.get("role") == "img"
                assert found.get("aria-label")
            for one in found.iter():
                assert one.tag != "script"
                assert "style" not in one.attrib  # the pages' policy lets none in


def test_an_axis_reaches_what_it_measures_in_few_round_steps() -> None:
    for most, case in each([1e-6, 0.3, 1, 7, 64, 99, 1234.5]):
        with case:
            drawn = charts.curve({"line": [(0, 0), (1, most)]}, "", "", "unit")
            texts = ElementTree.fromstring(drawn).iter("text")
            [_, *steps] = [one.text or "" for one in texts if one.get("text-anchor") == "end"]
            ticks = [float(text.replace(",", "")) for text in steps]
            assert ticks[0] == 0
            assert ticks[-1] >= most * 0.999
            assert 3 <= len(ticks) <= 7


@pytest.mark.parametrize("bounds", [(-0.1, 0.0, 0.1), (0.02, 0.04, 0.06), (0.0, 0.0, 0.0)])
def test_an_interval_lies_among_zero_and_its_marks(bounds: tuple[float, float, float]) -> None:
    drawn = charts.interval(bounds, "cost", {"hold": 0.0, "limit": 0.5})
    found = ElementTree.fromstring(drawn)
    [bar], [dot] = found.iter("rect"), found.iter("circle")
    zero, hold, limit = [float(one.get("x1", 0)) for one in found.iter("line")][1:]
    low, high = float(bar.get("x", 0)), float(bar.get("x", 0)) + float(bar.get("width", 0))
    assert zero == hold < limit
    assert low <= float(dot.get("cx", 0)) <= high < limit
    assert (low < zero) == (bounds[0] < 0)
    assert [one.text for one in found.iter("text")] == ["hold", "limit"]  # 0 has no room


@pytest.mark.parametrize("count", [1, 5, 12, 40])
def test_labels_of_a_histogram_have_room_and_bars_the_heights_of_their_counts(count: int) -> None:
    names = [f"{1000 + n}–{1001 + n}" for n in range(count)]
    drawn = ElementTree.fromstring(charts.histogram(dict.fromkeys(names, 1.0), "x", "y"))
    labels = [one for one in drawn.iter("text") if one.text in names]
    assert labels
    places = [float(one.get("x", 0)) for one in labels]
    assert all(right - left >= 6 * len(names[0]) for left, right in pairwise(places))
    found = ElementTree.fromstring(charts.histogram({"1": 5.0, "2": 10.0}, "x", "y"))
    heights = [float(bar.get("height", 0)) for bar in found.iter("rect")]
    assert heights[1] == 2 * heights[0] > 0


def test_lines_have_gaps_and_say_how_they_stand() -> None:
    line = [1.0, None, 2.0, 4.0, None, None]
    drawn = charts.over_time({"calls": line}, HOURS[:6], "throughput", "per second")
    [path] = [one for one in ElementTree.fromstring(drawn) if one.tag == "path"]
    pieces = path.attrib["d"].split("M")[1:]
    assert [len(piece.split()) for piece in pieces] == [2, 2]  # a point is a line to itself
    assert "throughput, per second: calls now 4, mean 2.33, at most 4" in drawn
    assert "now 2, at most 3" in charts.spark([1.0, 3.0, 2.0], "calls")
    assert charts.spark([1, 2, None, 3, 4], "x").count("<polyline") == 2


@pytest.mark.parametrize(
    ("minutes", "step", "marks"),
    [
        (30, 1, ["12:05", "12:10", "12:15", "12:20", "12:25", "12:30"]),
        (24 * 60, 10, ["16:00", "20:00", "00:00", "04:00", "08:00", "12:00"]),
        (7 * 24 * 60, 60, ["02 May", "03 May", "04 May", "05 May", "06 May", "07 May", "08 May"]),
    ],
)
def test_times_are_marked_at_whole_steps(minutes: int, step: int, marks: list[str]) -> None:
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    times = [noon + timedelta(minutes=n) for n in range(0, minutes + 1, step)]
    drawn = charts.over_time({"a": [1.0] * len(times)}, times, "a", "ms")
    middle = [one for one in ElementTree.fromstring(drawn) if one.get("text-anchor") == "middle"]
    assert [one.text for one in middle if one.text and "time" not in one.text] == marks
