"""When slices ran, each in the line of its worker, and when the tokens of a call came."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from api.dashboard.rendering.timeline import Bar, timeline
from api.dashboard.rendering.token_timeline import token_timeline
from jobs.calls.records import CallRecord
from jobs.store.jobs.detail import SliceRun
from tests.support.cases import each
from tests.support.stores.rows import made

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
    assert found
    assert len(found.lines) + found.left_out == 30
    assert found.left_out > 0


def test_bars_are_shares_of_the_whole_time_and_what_goes_on_ends_now() -> None:
    found = timeline([run(1, 0, 5), run(2, 5, 10)], at(99))
    assert found
    assert (found.since, found.until) == (at(0), at(10))
    assert [(bar.x, bar.width) for line in found.lines for bar in line.bars] == [(0, 50), (50, 50)]
    found = timeline([run(1, 0, None, "gpu-1")], at(20))
    assert found
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
    assert found
    assert found.total_ms == 200
    drawn = found.drawn()
    assert '<rect class="c2" x="200.0" width="800.0"' in drawn
    assert drawn.count('class="mark"') == 3
    assert 'class="mark" x1="600.0"' in drawn
    assert "queue 10 ms, prefill 30 ms, decode 160 ms; 3 marks, tokens from 40 to 200 ms" in drawn
    without = token_timeline(record({"ttft_ms": 0.0}))
    assert without
    assert "no tokens" in without.drawn()
    assert token_timeline(record({"queue_ms": 3.0, "engine_ms": 9.0})) is None
