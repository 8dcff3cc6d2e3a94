"""Charts and timelines are well-formed, say their figures in words, and take no name for markup."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from api.dashboard.rendering import charts
from api.dashboard.rendering.timeline import Bar, timeline
from api.dashboard.rendering.token_timeline import token_timeline
from jobs.calls.records import CallRecord
from jobs.store.jobs.detail import SliceRun
from tests.support.cases import each
from tests.support.stores.rows import made

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


BEGAN = datetime(2026, 5, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def run(worker: int, since_s: float, until_s: float | None, name: str = "") -> SliceRun:
    ended = None if until_s is None else at(until_s)
    times = {"claimed_at": at(since_s), "finished_at": ended}
    return made(SliceRun, {"worker": worker, "worker_name": name or None, **times})


def test_what_runs_at_once_lies_in_lines_of_its_own_as_many_as_fit() -> None:
    found = timeline([run(1, 0, 4), run(2, 1, 3), run(1, 2, 6), run(1, 5, 10)], at(99))
    assert found
    assert [(line.worker, len(line.bars)) for line in found.lines] == [(1, 2), (1, 1), (2, 1)]
    for line in found.lines:
        ends = [0.0, *(bar.x + bar.width for bar in line.bars)]
        assert all(bar.x >= end for bar, end in zip(line.bars, ends, strict=False))
    found = timeline([run(n, 0, 9) for n in range(30)], at(9))
    assert len(found.lines) + found.left_out == 30
    assert found.left_out > 0


def test_bars_are_shares_of_the_whole_time_and_what_goes_on_ends_now() -> None:
    found = timeline([run(1, 0, 5), run(2, 5, 10)], at(99))
    assert (found.since, found.until) == (at(0), at(10))
    assert [(bar.x, bar.width) for line in found.lines for bar in line.bars] == [(0, 50), (50, 50)]
    found = timeline([run(1, 0, None, "gpu-1")], at(20))
    assert found.until == at(20)
    assert (found.lines[0].name, found.lines[0].bars[0].width) == ("gpu-1", 100)
    assert timeline([], at(0)) is None


def test_a_bar_shows_the_share_that_failed() -> None:
    shares = [
        (8, 0, {"succeeded": 10.0}),
        (0, 8, {"failed": 10.0}),
        (6, 2, {"succeeded": 7.5, "failed": 2.5}),
        (999, 1, {"succeeded": 8.5, "failed": 1.5}),
        (1, 999, {"succeeded": 1.5, "failed": 8.5}),
        (0, 0, {"cancelled": 10.0}),
    ]
    for (succeeded, failed, parts), case in each(shares):
        with case:
            ended = replace(run(1, 0, 5), n_succeeded=succeeded, n_failed=failed)
            assert {part.name: part.height for part in Bar(0, 1, ended).parts} == parts
    assert [part.name for part in Bar(0, 1, run(1, 0, None)).parts] == ["running"]


def record(timing: dict[str, Any], *token_ms: int) -> CallRecord:
    named = "call_1", "acme", "chat", "1", "standard", "succeeded"
    return CallRecord(*named, 0.0, 500, 10_000, 3, "{}/0", timing, token_ms=token_ms)


TIMING = {"queue_ms": 10.0, "prefill_ms": 30.0, "decode_ms": 160.0, "ttft_ms": 40.0}


def test_stages_and_tokens_lie_at_their_times_where_there_are_any() -> None:
    found = token_timeline(record(TIMING, 40, 120, 200))
    assert found.total_ms == 200
    drawn = found.drawn()
    assert '<rect class="c2" x="200.0" width="800.0"' in drawn
    assert drawn.count('class="mark"') == 3
    assert 'class="mark" x1="600.0"' in drawn
    assert "queue 10 ms, prefill 30 ms, decode 160 ms; 3 marks, tokens from 40 to 200 ms" in drawn
    without = token_timeline(record({"ttft_ms": 0.0}))
    assert "no tokens" in without.drawn()
    assert token_timeline(record({"queue_ms": 3.0, "engine_ms": 9.0})) is None
