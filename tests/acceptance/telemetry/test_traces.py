"""Traces of a whole platform, as a real OTLP receiver gets them."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Proto

from millrace import Client
from ops.bench.harness.models_files import models_file, sample
from ops.processes.ports import free_port
from ops.supervisor.platform import Platform
from tests.support.children import pid_of
from tests.support.clients import chat
from tests.support.models.entries import function, model
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec
from tests.support.servers.otlp_receiver import ReceivedSpan, Sink
from tests.support.servers.receiver import Reply, receiving
from tests.support.servers.upstream import serving
from tests.support.wait import PATIENCE_S, eventually, slowdown

pytestmark = pytest.mark.nightly

PARENT = "00f067aa0ba902b7"
SERVER, CLIENT = Proto.SPAN_KIND_SERVER, Proto.SPAN_KIND_CLIENT
VECTORS = function("paced:vectors", task="embedding")
TALK = model("talk", "echo_chat")
#: Two jobs of 50 items fill a launch, if the second comes within five seconds.
PATIENT = sample("batchstring", name="patient", limits={"window_ms": 5000})
STAGES = ("queue", "preprocess", "batch", "engine", "postprocess")


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with Sink() as started:
        yield started


@pytest.fixture(scope="module")
def platform(platforms: Platforms, sink: Sink) -> Iterator[Platform]:
    """A platform that traces what its clients trace, and nothing else."""
    models = models_file(sample("echo"), sample("batchstring"), PATIENT) + VECTORS + TALK
    asked = spec(models, lease_s=3.0 * pace(), webhook_allow="127.0.0.1", trace_share=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
        patch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
        with platforms.running(asked, otlp_endpoint=sink.origin) as started:
            yield started


def parent(trace: str, sampled: bool = True) -> dict[str, str]:
    return {"traceparent": f"00-{trace}-{PARENT}-{sampled:02x}", "tracestate": "vendor=x1"}


def new_trace() -> str:
    return os.urandom(16).hex()


def call(platform: Platform, headers: dict[str, str], model: str = "echo") -> httpx.Response:
    body = {"model": model, "input": "x"}
    return httpx.post(f"{platform.url}/infer", json=body, headers=headers).raise_for_status()


def submit(platform: Platform, headers: dict[str, str], **more: Any) -> str:
    body = {"model": "batchstring", "items": [f"t{n}" for n in range(50)], **more}
    answer = httpx.post(f"{platform.url}/jobs", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def ids(*spans: ReceivedSpan) -> set[str]:
    return {span.id for span in spans}


def test_a_call_is_one_trace_from_its_client_to_the_launch(platform: Platform, sink: Sink) -> None:
    trace = new_trace()
    answer = call(platform, parent(trace))
    found = sink.trace(trace, "POST /infer", "call", *STAGES)
    request, inner = found["POST /infer"], found["call"]
    stages = [found[name] for name in STAGES]
    assert (request.parent, request.kind, request.service) == (PARENT, SERVER, "millrace-api")
    assert answer.headers["traceparent"] == f"00-{trace}-{request.id}-01"
    assert inner.parent == request.id
    assert [stage.parent for stage in stages] == [inner.id] * 5
    assert {stage.service for stage in stages} == {"millrace-worker"}
    assert request.holds(inner)
    assert all(inner.holds(stage) for stage in stages[:4])
    assert [s.end_ns for s in stages[:4]] == [s.start_ns for s in stages[1:]]
    assert not any(span.failed for span in found.values())
    said = request.attributes
    assert (said["http.route"], said["http.response.status_code"]) == ("/infer", 200)
    assert said["millrace.request.id"] == answer.headers["x-request-id"]
    assert inner.attributes["millrace.call.id"] == answer.json()["id"]
    assert inner.attributes["millrace.model"] == "echo@1"


def test_a_launch_links_its_calls_and_they_link_it(platform: Platform, sink: Sink) -> None:
    traces = [new_trace() for _ in range(24)]
    with ThreadPoolExecutor(24) as pool:
        list(pool.map(lambda trace: call(platform, parent(trace), "batchstring"), traces))
    calls = [sink.trace(trace, "call", "engine") for trace in traces]
    launches = [sink.launch_with(spans["call"].id) for spans in calls]
    for spans, launch in zip(calls, launches, strict=True):
        assert spans["engine"].links.keys() == {launch.id}
        assert launch.trace not in traces
        assert launch.attributes["millrace.model"] == "batchstring@1"
    ids = {spans["call"].id for spans in calls}
    shared = max(launches, key=lambda launch: len(launch.links.keys() & ids))
    linked = len(shared.links.keys() & ids)
    assert linked > 1
    assert shared.attributes["millrace.rows.calls"] == linked
    # Items of a job that a test before has left may be in it, too.
    assert shared.attributes["messaging.batch.message_count"] >= linked


def test_two_jobs_that_share_a_launch_are_both_linked(
    platform: Platform, sink: Sink, client: Client
) -> None:
    def shared() -> ReceivedSpan | None:
        traces = new_trace(), new_trace()
        for job in [submit(platform, parent(trace), model="patient") for trace in traces]:
            client.jobs.wait(job)
        slices = [sink.trace(trace, "POST /jobs", "slice", "settle") for trace in traces]
        for found in slices:
            mine = found["slice"]
            assert mine.parent == found["POST /jobs"].id
            assert found["settle"].parent == mine.id
            assert mine.holds(found["settle"])
            assert mine.attributes["millrace.rows"] == 50
            assert mine.links.keys() <= ids(*(s for s in sink.spans if s.name == "launch"))
        both = slices[0]["slice"].links.keys() & slices[1]["slice"].links.keys()
        return next((span for span in sink.spans if span.id in both), None)

    launch = eventually(shared)
    rows = sum(said["millrace.rows"] for said in launch.links.values())
    assert rows == launch.attributes["millrace.rows"]


def test_an_item_that_generates_is_a_part_of_its_slice(
    platform: Platform, sink: Sink, client: Client
) -> None:
    trace = new_trace()
    items = [{"input": chat("one two three")}]
    client.jobs.wait(submit(platform, parent(trace), model="talk", items=items))
    stages = ("queue", "prefill", "decode")
    found = sink.trace(trace, "slice", "chat talk@1", *stages)
    item = found["chat talk@1"]
    assert item.parent == found["slice"].id
    said = item.attributes
    assert (said["gen_ai.usage.output_tokens"], said["millrace.seq"]) == (3, 0)
    assert {found[name].parent for name in stages} == {item.id}


def test_a_webhook_is_a_part_of_the_trace_of_its_job(platform: Platform, sink: Sink) -> None:
    trace = new_trace()
    with receiving() as receiver:
        submit(platform, parent(trace), webhook={"url": receiver.url})
        told = eventually(lambda: receiver.received and receiver.received[0])
        sent = sink.trace(trace, "POST /jobs", "POST")["POST"]
    assert told.headers["traceparent"] == f"00-{trace}-{sent.id}-01"
    assert told.headers["tracestate"] == "vendor=x1"
    assert (sent.kind, sent.service) == (CLIENT, "millrace-keeper")
    assert sent.parent == sink.trace(trace, "POST /jobs")["POST /jobs"].id
    assert sent.attributes["http.response.status_code"] == 204


def test_large_bodies_and_other_doors_carry_it_too(
    platform: Platform, http: httpx.Client, sink: Sink
) -> None:
    large, openai = new_trace(), new_trace()
    items = [f"{n:0100d}" for n in range(20_000)]
    submit(platform, parent(large), items=items)
    assert sink.trace(large, "POST /jobs", "slice")["slice"].service == "millrace-worker"
    asked = {"model": "vectors", "input": "x"}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/embeddings", "body": asked})
    content = {"file": ("a.jsonl", line)}
    file = http.post("/v1/files", files=content, data={"purpose": "batch"}).json()["id"]
    batch = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    http.post("/v1/batches", json=batch, headers=parent(openai)).raise_for_status()
    parts = ("import", "slice", "export")
    found = sink.trace(openai, "POST /v1/batches", *parts)
    assert {found[name].parent for name in parts} == {found["POST /v1/batches"].id}


def test_what_a_client_does_not_sample_is_not_traced_but_passed_on(
    platform: Platform, sink: Sink
) -> None:
    silent, seen = new_trace(), new_trace()
    assert "-00" in call(platform, parent(silent, sampled=False)).headers["traceparent"]
    with receiving() as receiver:
        submit(platform, parent(silent, sampled=False), webhook={"url": receiver.url})
        told = eventually(lambda: receiver.received and receiver.received[0])
    assert told.headers["traceparent"].startswith(f"00-{silent}-")
    assert told.headers["traceparent"].endswith("-00")
    call(platform, parent(seen))
    sink.trace(seen, "POST /infer", *STAGES)  # what came later is there
    assert sink.of_trace(silent) == []


def test_a_share_of_none_begins_no_trace(platform: Platform, sink: Sink) -> None:
    assert "traceparent" not in call(platform, {}).headers
    assert "traceparent" not in call(platform, {"traceparent": "00-nonsense-01"}).headers
    seen = new_trace()
    call(platform, parent(seen))
    sink.trace(seen, "POST /infer", *STAGES)
    assert [span for span in sink.spans if not span.parent and span.name != "launch"] == []


def test_a_refusal_is_the_clients_and_a_failure_is_ours(platform: Platform, sink: Sink) -> None:
    trace = new_trace()
    answer = httpx.post(
        f"{platform.url}/infer", json={"model": "nowhere", "input": 1}, headers=parent(trace)
    )
    assert answer.status_code == 404
    request = sink.trace(trace, "POST /infer")["POST /infer"]
    assert (request.failed, request.attributes["http.response.status_code"]) == (False, 404)


# -- platforms of their own


def test_a_share_of_one_traces_everything_and_who_leaves_sends_what_it_has(
    platforms: Platforms,
) -> None:
    """No batch is due before the processes end, the worker by os._exit."""
    with pytest.MonkeyPatch.context() as patch, Sink() as sink:
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "600000")
        patch.setenv("OTEL_SERVICE_NAME", "theirs")
        with platforms.running(otlp_endpoint=f"{sink.origin}/", trace_share=1.0) as platform:
            answers = [call(platform, {"traceparent": "malformed"}) for _ in range(5)]
            traces = {answer.headers["traceparent"].split("-")[1] for answer in answers}
            assert (len(traces), sink.spans) == (5, [])
            os.kill(pid_of(platform), signal.SIGTERM)
            eventually(lambda: sum(span.name == "engine" for span in sink.spans) == 5)
            assert not any(span.name == "POST /infer" for span in sink.spans)
        found = [span for span in sink.spans if span.trace in traces]
    assert {span.service for span in found} == {"theirs"}
    assert [span.parent for span in found if span.name == "POST /infer"] == [""] * 5


@pytest.mark.parametrize("how", ["away", "slow"])
def test_a_receiver_that_takes_nothing_is_told_of_once_and_slows_no_call(
    platforms: Platforms, how: str
) -> None:
    over = threading.Event()
    with pytest.MonkeyPatch.context() as patch, receiving() as slow:
        slow.reply = lambda request: Reply(200 if over.wait(PATIENCE_S) else 500)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        patch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
        endpoint = f"http://127.0.0.1:{slow.port if how == 'slow' else free_port()}"
        with platforms.running(otlp_endpoint=endpoint, trace_share=1.0) as platform:
            said, took_ms = platform.settings.home / "logs" / "api.log", list[float]()

            def times_told() -> int:
                took_ms.append(call(platform, {}).json()["timing"]["total_ms"])
                return said.read_text().count("accepts no spans")

            eventually(times_told)
            more = len(slow.received) + 2
            eventually(lambda: times_told() and (how == "away" or len(slow.received) >= more))
            assert times_told() == 1
            assert sorted(took_ms)[-2] < 1000 * slowdown()  # one may meet a starved process
        over.set()
        assert "Traceback" not in said.read_text()


def test_an_upstream_gets_the_trace(platforms: Platforms) -> None:
    shouted: Any = {"body": {"text": "$input"}, "output": "/results/0/text"}
    with serving() as upstream, Sink() as sink:
        models = model("shout", "http", target_ms=5000, url=f"{upstream.url}/shout", **shouted)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
            with platforms.running(spec(models), otlp_endpoint=sink.origin) as platform:
                trace = new_trace()
                call(platform, parent(trace), "shout")
                found = sink.trace(trace, "engine", "POST")
        asked = next(r for r in upstream.received if "traceparent" in r.headers)
    assert found["POST"].parent == found["engine"].id
    assert found["engine"].holds(found["POST"])
    assert asked.headers["traceparent"] == f"00-{trace}-{found['POST'].id}-01"
    assert asked.headers["tracestate"] == "vendor=x1"
