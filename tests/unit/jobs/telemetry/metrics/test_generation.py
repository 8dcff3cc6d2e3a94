"""Generation becomes metrics with the names that vLLM's have."""

from collections.abc import Iterator

import pytest

from jobs.telemetry.metrics import deferred, generation, record
from jobs.telemetry.metrics.generation import EndedRequest, PoolState, Targets
from jobs.telemetry.metrics.label_limit import LabelLimit
from jobs.telemetry.metrics.metrics import REGISTRY

TARGETS = Targets(ttft_s=1.0, itl_s=0.1)
ENDED = EndedRequest(0.2, 0.3, 2.0, 0.5, 0.05, 10, 4, 40)
_models = iter(f"m{n}@1" for n in range(1000))


@pytest.fixture
def model() -> str:
    return next(_models)


@pytest.fixture
def _off() -> Iterator[None]:
    record.set_enabled(False)
    yield
    record.set_enabled(True)


def value(name: str, **labels: str) -> float:
    deferred.flush()
    return REGISTRY.get_sample_value(f"millrace_{name}", labels) or 0.0


def target(model: str, name: str) -> tuple[float, float]:
    """How often it was met, and missed."""
    met, missed = (
        value("generation_target_total", model=model, target=name, met=one)
        for one in ("true", "false")
    )
    return met, missed


def test_a_request_is_timed_from_its_arrival_to_its_last_token(model: str) -> None:
    generation.request_ended(model, "call", ENDED, ["stop"], TARGETS)
    sums = {
        name: value(f"{name}_seconds_sum", model=model, kind="call")
        for name in (
            "time_to_first_token",
            "request_queue_time",
            "request_prefill_time",
            "request_decode_time",
        )
    }
    assert list(sums.values()) == [0.5, 0.2, 0.3, 2.0]
    assert value("request_success_total", model=model, finished_reason="stop") == 1
    assert value("prompt_tokens_total", model=model) == 10
    assert value("generation_tokens_total", model=model) == 40
    assert value("prefix_cache_hits_total", model=model) == 4
    assert value("prefix_cache_queries_total", model=model) == 10


def test_preemptions_are_counted_with_their_request(model: str) -> None:
    generation.request_ended(model, "item", EndedRequest(preemptions=2), [])
    assert value("num_preemptions_total", model=model, kind="item") == 2


def test_what_did_not_happen_is_not_timed(model: str) -> None:
    generation.request_ended(model, "call", EndedRequest(queue_s=3.0), [])
    assert value("request_queue_time_seconds_count", model=model, kind="call") == 1
    assert value("time_to_first_token_seconds_count", model=model, kind="call") == 0
    assert target(model, "ttft") == (0, 0)


@pytest.mark.parametrize(
    ("timing", "ttft", "itl"),
    [
        (ENDED, (1, 0), (1, 0)),
        (EndedRequest(ttft_s=1.01, itl_s=0.11), (0, 1), (0, 1)),
        (EndedRequest(ttft_s=1.0), (1, 0), (0, 0)),
        (EndedRequest(), (0, 1), (0, 0)),
    ],
)
def test_calls_are_held_to_both_targets(
    model: str, timing: EndedRequest, ttft: tuple[int, int], itl: tuple[int, int]
) -> None:
    generation.request_ended(model, "call", timing, [], TARGETS)
    assert (target(model, "ttft"), target(model, "itl")) == (ttft, itl)


def test_items_have_no_target(model: str) -> None:
    generation.request_ended(model, "item", ENDED, [], TARGETS)
    assert target(model, "ttft") == (0, 0)
    assert value("time_to_first_token_seconds_count", model=model, kind="item") == 1


def test_steps_with_a_prefill_are_told_from_others(model: str) -> None:
    generation.step_ended(model, 0.2, 64, {"call": (0.2, 0.25), "item": (0.2,)})
    generation.step_ended(model, 0.05, 0, {"call": (0.05,)})
    assert value("generation_step_seconds_sum", model=model, prefill="true") == 0.2
    assert value("generation_step_seconds_sum", model=model, prefill="false") == 0.05
    assert value("inter_token_latency_seconds_count", model=model, kind="call") == 3
    assert value("inter_token_latency_seconds_count", model=model, kind="item") == 1


def test_the_pool_is_as_it_was_last(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "TENANTS", LabelLimit(2))  # other tests have named some
    before = PoolState({"call": 3, "item": 4}, {"call": 2, "item": 9}, 100, 0)
    generation.pool_changed(model, before, {"a": 75, "b": 25})
    after = PoolState({"call": 2, "item": 0}, {"call": 0, "item": 5}, 100, 75)
    generation.pool_changed(model, after, {"a": 0, "b": 25})
    assert value("kv_cache_usage_perc", model=model) == 0.25
    assert value("kv_cache_blocks", model=model) == 100
    assert value("num_requests_running", model=model, kind="call") == 2
    assert value("num_requests_running", model=model, kind="item") == 0
    assert value("num_requests_waiting", model=model, kind="item") == 5
    blocks = [value("tenant_kv_cache_blocks", model=model, tenant=one) for one in ("a", "b")]
    assert blocks == [0, 25]


def test_a_server_of_unknown_blocks_uses_none(model: str) -> None:
    generation.pool_changed(model, PoolState({"call": 3}, {"call": 0}, 0, 0), {})
    assert value("kv_cache_usage_perc", model=model) == 0


@pytest.mark.usefixtures("_off")
def test_nothing_is_counted_while_metrics_are_off(model: str) -> None:
    generation.request_ended(model, "call", ENDED, ["stop"], TARGETS)
    record.set_enabled(True)
    assert value("prompt_tokens_total", model=model) == 0
