"""Calls as metrics: which of their time is whose, and which target they are held to."""

import pytest

from api.gateway import metrics
from jobs.models.model import Model
from jobs.telemetry.metrics import deferred
from jobs.telemetry.metrics.metrics import REGISTRY

CHAT = Model("judged", "1", "echo_chat", target_ms=50, target_ttft_ms=300)
ECHO = Model("judged", "2", "echo", target_ms=50)


def value(name: str, model: Model, **labels: str) -> float:
    deferred.flush()
    return REGISTRY.get_sample_value(f"millrace_{name}", {"model": model.key, **labels}) or 0.0


def test_a_call_is_held_to_its_first_token_or_whole_time_and_the_engine_has_its_own() -> None:
    for ttft_ms, met in ((299.0, "true"), (301.0, "false")):
        timing = {"ttft_ms": ttft_ms, "prefill_ms": 100.0, "decode_ms": 4000.0}
        before = value("call_target_total", CHAT, met=met)
        metrics.record_answered(CHAT, "standard", 5.0, timing)
        assert value("call_target_total", CHAT, met=met) == before + 1
    for seconds, met in ((0.049, "true"), (0.051, "false")):
        metrics.record_answered(ECHO, "standard", seconds, {"engine_ms": 10.0})
        assert value("call_target_total", ECHO, met=met) == 1
    timing = {"ttft_ms": 1.0, "queue_ms": 400.0, "prefill_ms": 100.0, "decode_ms": 4000.0}
    assert metrics.gateway_ms(5000.0, timing) == 500.0
    before = value("call_stage_seconds_sum", CHAT, stage="engine")
    metrics.record_answered(CHAT, "standard", 5.0, timing)
    assert value("call_stage_seconds_sum", CHAT, stage="engine") == pytest.approx(before + 4.1)
