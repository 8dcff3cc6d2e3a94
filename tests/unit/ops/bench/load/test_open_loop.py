"""A load that is driven for real against a server that answers as it is told."""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import pytest

from jobs import clock
from ops.bench.harness.errors import BenchError
from ops.bench.load.open_loop import Load, drive, driver
from tests.support.wait import PATIENCE_S
from tests.unit.ops.bench.made import made

pytestmark = pytest.mark.heavy

HOLD_S = 0.1
ALL_THERE = threading.Barrier(20, timeout=PATIENCE_S)


class Server(BaseHTTPRequestHandler):
    """Upper-cases; refuses "busy", drops the connection of "gone", waits with "slow", and with
    "together" until all are there; takes in "job"; "who" gets what it identified itself with."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        if asked == "gone":
            self.close_connection = True
            return
        if asked == "slow":
            clock.sleep(HOLD_S)
        if asked == "together":
            ALL_THERE.wait()
        status, answer = 200, {
            "output": asked.upper(),
            "usage": {"tokens": 3, "truncated": 4},
            "timing": {"flush": "pace", "batch_size": 2, "engine_ms": 1.5},
        }  # fmt: skip
        if asked == "busy":
            status, answer = 429, {"code": "too_late"}
        if asked == "job":
            status, answer = 202, {"id": "job_1"}
        if asked == "who":
            answer["output"] = self.headers["Authorization"]
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Listening(ThreadingHTTPServer):
    request_queue_size = 64
    daemon_threads = True


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    server = Listening(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    with closing(server.socket):
        yield f"http://127.0.0.1:{server.server_address[1]}/infer"
        server.shutdown()
        thread.join()


def load(url: str, inputs: list[str], due_s: list[float], **changes: Any) -> Load:
    bodies = [json.dumps({"input": text}) for text in inputs]
    return Load(url, due_s, bodies, [text.upper() for text in inputs], **changes)


def test_every_call_is_sent_when_due_and_its_answer_kept(url: str) -> None:
    calls = drive(load(url, ["a", "b", "busy", "gone"], [0.0, 0.1, 0.1, 0.2, 0.3]))
    assert calls.status.tolist() == [200, 200, 429, 0, 200]
    assert calls.right.tolist() == [True, True, False, False, True]
    assert calls.refused.tolist() == [False, False, True, False, False]
    assert calls.code.tolist() == ["", "", "too_late", "", ""]
    assert calls.flush.tolist() == ["pace", "pace", "", "", "pace"]
    assert calls.batch_size[0] == 2
    assert calls.units[0] == 3
    assert np.isnan(calls.engine_ms[2])
    assert np.isnan(calls.predicted_ms[0])
    assert (calls.late_ms >= 0).all()
    assert np.isnan(calls.latency_ms).tolist() == [False, False, False, True, False]
    assert calls.errors == 2
    assert calls.cpu_s > 0


def test_an_unexpected_answer_is_an_error_and_each_body_has_its_key(url: str) -> None:
    wrong = Load(url, [0.0, 0.0], [json.dumps({"input": "a"})], ["B"])
    assert drive(wrong).errors == 2
    calls = drive(Load(url, [0.0], [json.dumps({"input": "job"})]))
    assert (calls.status.tolist(), calls.errors) == ([202], 0)
    bodies = [json.dumps({"input": "who"})] * 2
    outputs = ["Bearer a", "Bearer b"]
    assert drive(Load(url, [0.0] * 4, bodies, outputs, keys=["a", "b"])).errors == 0
    assert drive(Load(url, [0.0] * 2, bodies, outputs)).errors == 2


def test_calls_wait_for_each_other_in_a_closed_loop_alone(url: str) -> None:
    calls = drive(load(url, ["together"], [0.0] * 20, grace_s=PATIENCE_S))
    assert calls.errors == 0
    assert calls.sent_s.max() < calls.ended_s.min()
    calls = drive(load(url, ["slow"], [0.0] * 6, max_in_flight=2))
    assert calls.errors == 0
    for sent_s in calls.sent_s:
        assert ((calls.sent_s <= sent_s) & (calls.ended_s > sent_s)).sum() <= 2


def test_a_driver_that_is_stopped_sends_nothing_more(url: str) -> None:
    with driver(load(url, ["a"], [0.0, 3600.0])) as running:
        running.go()
        running.stop()
        assert len(running.calls()) <= 1


def test_what_cannot_be_reached_or_fails_is_no_measurement() -> None:
    calls = drive(load("http://127.0.0.1:1/infer", ["a"], [0.0]))
    assert calls.status.tolist() == [0]
    with pytest.raises(BenchError, match="none of 1 calls was answered"):
        calls.percentiles(50)
    assert made([0], [0.1], [200]).all_right().errors == 0
    with pytest.raises(BenchError, match="1 of 2 calls failed"):
        made([0, 1], [0.1] * 2, [200, 500]).all_right()


def test_latency_and_parts_count_from_the_due_time() -> None:
    calls = made([0, 1, 2, 3], [0.1, 0.2, 0.001, 0.3], [200, 200, 429, 200])
    assert calls.percentiles(0, 50, 100) == pytest.approx([100, 200, 300])
    assert calls.miss_share(250) == 0.5
    calls = made([0, 1, 2, 3], [5.0] * 4, [200] * 4)
    assert calls.since(1).due_s.tolist() == [1, 2, 3]
    assert calls.between(1001, 1003).due_s.tolist() == [1, 2]
    assert calls.statuses() == {"200": 4}
    assert calls.phase(1000.5, 1002.5).due_s.tolist() == [1, 2]
    assert calls.phase(1002.5, 1002.6).due_s.tolist() == [2], "the last one before its end"
