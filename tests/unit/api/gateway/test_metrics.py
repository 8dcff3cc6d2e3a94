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


@pytest.mark.parametrize(("ttft_ms", "met"), [(299.0, "true"), (301.0, "false")])
def test_a_call_that_generates_is_held_to_its_first_token(ttft_ms: float, met: str) -> None:
    before = value("call_target_total", CHAT, met=met)
    timing = {"ttft_ms": ttft_ms, "prefill_ms": 100.0, "decode_ms": 4000.0}
    metrics.record_answered(CHAT, "standard", 5.0, timing)
    assert value("call_target_total", CHAT, met=met) == before + 1


def test_prefill_and_decode_are_the_engines_time() -> None:
    timing = {"ttft_ms": 1.0, "queue_ms": 400.0, "prefill_ms": 100.0, "decode_ms": 4000.0}
    assert metrics.gateway_ms(5000.0, timing) == 500.0
    before = value("call_stage_seconds_sum", CHAT, stage="engine")
    metrics.record_answered(CHAT, "standard", 5.0, timing)
    assert value("call_stage_seconds_sum", CHAT, stage="engine") == pytest.approx(before + 4.1)


def test_any_other_call_is_held_to_its_whole_time() -> None:
    metrics.record_answered(ECHO, "standard", 0.051, {"engine_ms": 10.0})
    metrics.record_answered(ECHO, "standard", 0.049, {"engine_ms": 10.0})
    assert value("call_target_total", ECHO, met="true") == 1
    assert value("call_target_total", ECHO, met="false") == 1
