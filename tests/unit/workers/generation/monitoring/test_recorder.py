"""Metrics, spans and records of rollouts of a generation host."""

from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from jobs.calls.lanes import TOO_LATE
from jobs.calls.messages import Call, Reply
from jobs.models.inputs.generation import TokenUsage
from jobs.models.model import Model
from jobs.models.pricing import Price
from jobs.rollouts.cohorts import Cohort
from jobs.telemetry.metrics import deferred, generation, record
from jobs.telemetry.metrics.labels import LabelLimit
from jobs.telemetry.metrics.metrics import REGISTRY
from jobs.telemetry.tracing.context import new_trace
from jobs.telemetry.tracing.spans import NO_SPAN, Span
from tests.support.cases import each
from tests.unit.kept_spans import Kept
from tests.unit.workers.generation import made
from workers.device.monitoring.utilization import Utilization
from workers.engines.generator import Step
from workers.engines.protocol import InvalidInput, Transient
from workers.generation.monitoring.recorder import Recorder
from workers.generation.monitoring.rollout_records import record_of
from workers.generation.requests import Sequenced

_numbers = iter(range(1000))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    deferred.flush()  # of other tests, which may have named as many tenants as have a series
    for module in (generation, record):
        monkeypatch.setattr(module, "TENANTS", LabelLimit(100))
    name = f"recorded{next(_numbers)}"
    return Model(name, "1", "echo_chat", target_ttft_ms=1000, target_itl_ms=100)


def value(name: str, model: Model, **labels: str) -> float:
    deferred.flush()
    return REGISTRY.get_sample_value(f"millrace_{name}", {"model": model.key, **labels}) or 0.0


def ran(tokens: int = 11, *, trace: str = "", **more: Any) -> Sequenced:
    """A sequence that waited for 0.2 s, had its first token at 0.5 s and its last at 1.5 s."""
    one = made.sequence(prompt=20, tokens=64, **more)
    request = one.request
    request.owner = Call(request.id, "{}/0", request.tenant, None, 20, "api-1", trace=trace)
    request.arrived_s, request.admitted_s, request.first_s = 10.0, 10.2, 10.5
    one.cached, one.runs = 8, 1
    one.emitted += range(tokens)
    one.finish = "stop"
    return one


def judged(model: Model, target: str) -> tuple[float, ...]:
    ends = ("true", "false")
    return tuple(value("generation_target_total", model, target=target, met=met) for met in ends)


def test_a_request_is_counted_with_its_times_and_tokens(model: Model) -> None:
    Recorder(model, "w").ended(ran().request, 11.5)
    assert value("time_to_first_token_seconds_sum", model, kind="call") == 0.5
    assert value("request_queue_time_seconds_sum", model, kind="call") == pytest.approx(0.2)
    assert value("request_prefill_time_seconds_sum", model, kind="call") == pytest.approx(0.3)
    assert value("request_decode_time_seconds_sum", model, kind="call") == 1.0
    assert value("prompt_tokens_total", model) == 20
    assert value("generation_tokens_total", model) == 11
    assert value("prefix_cache_hits_total", model) == 8
    assert value("request_success_total", model, finished_reason="stop") == 1
    assert (judged(model, "ttft"), judged(model, "itl")) == ((1, 0), (1, 0))
    assert value("tenant_units_total", model, tenant="a") == 31


@pytest.mark.parametrize(
    ("error", "ttft"),
    [
        (("cancelled", "its client left"), (0, 0)),
        (InvalidInput("wrong"), (0, 0)),
        (TOO_LATE, (0, 1)),
        (Transient("the engine died"), (0, 1)),
    ],
)
def test_an_end_that_is_ours_misses_the_target(
    model: Model, error: Any, ttft: tuple[int, int]
) -> None:
    waiting = ran(0).request
    waiting.admitted_s = waiting.first_s = 0.0
    Recorder(model, "w").ended(waiting, 11.5, error)
    assert judged(model, "ttft") == ttft
    assert value("prompt_tokens_total", model) == 0


def test_gaps_are_those_between_tokens_of_one_sequence(model: Model) -> None:
    recorder, scheduler = Recorder(model, "w"), made.scheduler()
    call, item = made.sequence(), made.sequence(call=False)
    for now_s, emitted in ((1.0, (call, item)), (1.5, (call, item)), (1.75, (call,))):
        for one in emitted:
            recorder.emitted(one, now_s)
        recorder.stepped(Step(duration_s=0.1, sequences=2), scheduler, now_s)
    assert value("inter_token_latency_seconds_sum", model, kind="call") == 0.75
    assert value("inter_token_latency_seconds_count", model, kind="call") == 2
    assert value("inter_token_latency_seconds_count", model, kind="item") == 1
    assert value("generation_step_seconds_count", model, prefill="false") == 3


def test_blocks_are_counted_by_tenant_until_it_has_none(model: Model) -> None:
    recorder, scheduler = Recorder(model, "w"), made.scheduler(blocks=10, block_tokens=10)
    first, second = made.sequence(prompt=25), made.sequence(prompt=10, tenant="b", call=False)
    scheduler.put([first, second])
    scheduler.decide()
    recorder.stepped(Step(sequences=2, free_blocks=6), scheduler, 1.0)
    assert value("kv_cache_usage_perc", model) == 0.4
    assert value("kv_cache_blocks", model) == 10
    assert value("tenant_kv_cache_blocks", model, tenant="a") == 3
    assert value("tenant_kv_cache_blocks", model, tenant="b") == 1
    assert value("num_requests_running", model, kind="call") == 1
    for one in (first, second):
        scheduler.remove(one)
    recorder.stepped(Step(sequences=2, free_blocks=6), scheduler, 1.01)
    assert value("tenant_kv_cache_blocks", model, tenant="a") == 0
    assert value("kv_cache_usage_perc", model) == 0
    assert value("num_requests_running", model, kind="call") == 0


def test_the_pool_is_recorded_a_few_times_a_second_while_it_runs(model: Model) -> None:
    recorder, scheduler = Recorder(model, "w"), made.scheduler(blocks=10)
    scheduler.put([made.sequence()])
    scheduler.decide()
    usages = []
    for now_s, free in ((1.0, 8), (1.1, 5), (1.3, 3)):
        recorder.stepped(Step(sequences=1, free_blocks=free), scheduler, now_s)
        usages.append(value("kv_cache_usage_perc", model))
    assert usages == [0.2, 0.2, 0.7]


def test_a_sampled_call_has_the_span_of_its_generation(model: Model, kept: Kept) -> None:
    Recorder(model, "w").ended(ran(trace=new_trace(1.0).pack()).request, 11.5)
    Recorder(model, "w").ended(ran().request, 11.5)
    whole, *stages = kept.spans
    assert whole.name == f"text_completion {model.key}"
    assert whole.attributes["gen_ai.usage.output_tokens"] == 11
    assert whole.attributes["gen_ai.request.max_tokens"] == 64
    assert [one.name for one in stages] == ["queue", "prefill", "decode"]


def test_an_item_of_a_sampled_job_has_its_span_under_its_slice(model: Model, kept: Kept) -> None:
    sampled = Span("slice", new_trace(1.0))
    for span in (sampled, NO_SPAN):
        request = ran(call=False).request
        request.owner, request.seq = SimpleNamespace(span=span), 7
        Recorder(model, "w").ended(request, 11.5)
    whole, *stages = kept.spans
    assert whole.parent == sampled.context.span_id
    assert whole.attributes["millrace.seq"] == 7
    assert [one.name for one in stages] == ["queue", "prefill", "decode"]


def test_the_device_is_busy_during_a_step(now: list[float]) -> None:
    device = f"recorded{next(_numbers)}"
    recorder = Recorder(Model("m", "1", "echo_chat"), "w", Utilization(device))
    with recorder.busy():
        now[0] += 0.5
    deferred.flush()
    name, labels = "millrace_device_busy_seconds_total", {"device": device}
    assert REGISTRY.get_sample_value(name, labels) == 0.5


MODEL = Model("m", "2", "echo_chat")
COHORT = Cohort("canary", "r", "ann")


def reply(*choices: dict[str, Any]) -> Reply:
    output = orjson.dumps({"choices": [{"finish_reason": "stop", **one} for one in choices]})
    timing = {"ttft_ms": 5.0, "itl_ms": 2.0, "decode_ms": 20.0}
    return Reply("a", output, None, 30, timing, tokens=TokenUsage(20, 4, 10))


def test_choices_that_are_empty_or_cut_are_counted_and_tokens_priced() -> None:
    empty = [{"text": ""}, {"message": {"content": None}}]
    others = [{"text": "a"}, {"message": {"content": None, "tool_calls": [{}]}}]
    for choice, case in each([*empty, *others]):
        with case:
            assert record_of(MODEL, COHORT, reply(choice)).empty == (choice in empty)
    cut = {"text": "a", "finish_reason": "length"}
    record = record_of(MODEL, COHORT, reply(cut, {"text": "b"}, cut))
    assert (record.truncated, record.price, record.unit) == (2, 30.0, "ann")
    assert (record.ttft_ms, record.itl_ms, record.lasted_ms) == (5.0, 2.0, 25.0)
    one, none, two = map(Decimal, (1, 0, 2))
    rates = Price(per_1k_input_tokens=one, per_1k_cached_tokens=none, per_1k_output_tokens=two)
    priced = Model("m", "2", "echo_chat", price=rates)
    assert record_of(priced, COHORT, reply(cut)).price == pytest.approx(0.036)


def test_a_call_that_failed_has_no_times_to_compare() -> None:
    failed = Reply("a", None, ("transient", "died"), 0, {"ttft_ms": 5.0, "decode_ms": 1.0})
    record = record_of(MODEL, COHORT, failed)
    assert (record.failed, record.ttft_ms, record.lasted_ms) == (1, 0.0, 6.0)
