"""Timeline of a call's tokens."""

from typing import Any

from api.dashboard.rendering.token_timeline import token_timeline
from jobs.calls.records import CallRecord


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
