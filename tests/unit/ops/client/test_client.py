"""The client of the command line: a job is submitted once, waited for and read to its end, though
the connection breaks."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

from jobs import clock
from ops.client.client import ApiError, Client, JobChanged

Handler = Callable[[httpx.Request], httpx.Response]
LINES = [b'"x"\n', b'"y"\n']


def answered_by(monkeypatch: pytest.MonkeyPatch, handle: Handler, key: str | None = None) -> Client:
    """A client whose requests get what the function returns."""
    transport = httpx.MockTransport(handle)
    with monkeypatch.context() as patch:
        patch.setattr(httpx, "Client", partial(httpx.Client, transport=transport))
        return Client("http://x", key)


def client(monkeypatch: pytest.MonkeyPatch, *ends: int | Exception) -> tuple[Client, list[str]]:
    """A client whose requests end so, one after the other; and what it sends."""
    sent: list[str] = []
    left = list(ends)

    def handle(request: httpx.Request) -> httpx.Response:
        sent.append(f"{request.headers['idempotency-key']} {request.read()!r}")
        end = left.pop(0)
        if isinstance(end, Exception):
            raise end
        return httpx.Response(end, json={"id": "job_1"})

    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    return answered_by(monkeypatch, handle), sent


def test_a_job_whose_answer_was_lost_is_sent_again_under_the_same_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken = [httpx.ReadError("reset"), httpx.ConnectError("restarting"), 409]
    made, sent = client(monkeypatch, *broken, 202)
    assert made.submit(LINES, model="echo")["id"] == "job_1"
    assert len(sent) == 4
    assert len(set(sent)) == 1
    assert sent[0].endswith(repr(b"".join(LINES)))


def test_each_job_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent = client(monkeypatch, 202, 202)
    made.submit(LINES, model="echo")
    made.submit(LINES, model="echo")
    assert len(set(sent)) == 2


@pytest.mark.parametrize(
    ("end", "raised"), [(httpx.ConnectError("nobody"), httpx.ConnectError), (422, ApiError)]
)
def test_where_nobody_listens_or_it_is_refused_it_is_not_sent_again(
    monkeypatch: pytest.MonkeyPatch, end: int | Exception, raised: type[Exception]
) -> None:
    made, sent = client(monkeypatch, end)
    with pytest.raises(raised):
        made.submit(LINES, model="echo")
    assert len(sent) == 1


def test_an_order_goes_into_the_query_objects_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[httpx.URL] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.url)
        return httpx.Response(202, json={"id": "job_1"})

    made = answered_by(monkeypatch, handle)
    made.submit(LINES, model="echo", priority=3, expires_in_s=None, output={"url": "s3://b/"})
    assert dict(seen[0].params) == {
        "model": "echo", "priority": "3", "expires_in_s": "null", "output": '{"url": "s3://b/"}'
    }  # fmt: skip


def test_what_the_detail_says_already_is_not_said_again() -> None:
    fault = {"loc": ["path", "job_id"], "message": "'x' is no id"}
    problem = {"title": "Wrong", "detail": "path.job_id: 'x' is no id", "errors": [fault]}
    assert str(ApiError(httpx.Response(422, json=problem))) == "Wrong: path.job_id: 'x' is no id"
    problem["detail"] = "1 fault, nothing was stored"
    assert "path.job_id: 'x' is no id" in str(ApiError(httpx.Response(422, json=problem)))


def test_a_stream_is_sent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sent = client(monkeypatch, httpx.ReadError("reset"))
    with pytest.raises(httpx.ReadError):
        made.submit(iter(LINES), model="echo")
    assert len(sent) == 1


@pytest.mark.parametrize(("key", "sent"), [(None, None), ("mk_x", "Bearer mk_x")])
def test_the_key_goes_with_every_request(
    monkeypatch: pytest.MonkeyPatch, key: str | None, sent: str | None
) -> None:
    seen: list[str | None] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("authorization"))
        return httpx.Response(200, json={})

    made = answered_by(monkeypatch, handle, key)
    made.job("job_1")
    made.submit_order({})
    assert seen == [sent, sent]


class Breaking:
    """A real server of a job whose results are sent in pieces; between them the connection breaks,
    or the api answers 503 instead."""

    def __init__(self, lines: list[bytes], pieces: list[int], generations: list[int]) -> None:
        self.asked: list[str] = []
        self._lines, self._pieces, self._generations = lines, pieces, generations
        self.server = HTTPServer(("127.0.0.1", 0), self._handler())
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def _handler(breaking) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                breaking.asked.append(self.path)
                if "/results" not in self.path:
                    left = breaking._generations
                    generation = left.pop(0) if len(left) > 1 else left[0]
                    body = b'{"state": "completed", "generation": %d}' % generation
                    return self._send(200, body, len(body))
                count = breaking._pieces.pop(0)
                if count < 0:
                    return self._send(503, b"{}", 2)
                after = int(self.path.partition("after=")[2].partition("&")[0])
                rest = breaking._lines[after + 1 :]
                sent = b"".join(line + b"\n" for line in rest[:count])
                torn = rest[count][:5] if count < len(rest) else b""  # in the middle of a line
                self._send(200, sent + torn, sum(len(line) + 1 for line in rest))
                return None

            def _send(self, status: int, body: bytes, length: int) -> None:
                self.send_response(status)
                self.send_header("content-length", str(length))
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = len(body) < length

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def breaking(lines: list[bytes], pieces: list[int], *generations: int) -> Iterator[Breaking]:
    made = Breaking(lines, pieces, list(generations))
    thread = threading.Thread(target=made.server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield made
    finally:
        made.server.shutdown()
        made.server.server_close()
        thread.join()


SEVEN = [b'{"seq":%d,"output":"a\xe2\x80\xa8b"}' % seq for seq in range(7)]


def read(server: Breaking) -> list[bytes]:
    made = Client(server.url)
    try:
        return list(made.resumable_results("job_1"))
    finally:
        made.close()


def test_results_go_on_where_the_connection_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    with breaking(SEVEN, [3, 0, -1, 2, 7], 1) as server:
        assert read(server) == SEVEN
    after = [path.partition("after=")[2].partition("&")[0] for path in server.asked]
    assert list(filter(None, after)) == ["-1", "2", "2", "2", "4"]


def test_results_of_two_generations_are_never_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    with (
        breaking(SEVEN, [3, 7], 1, 2) as server,
        pytest.raises(JobChanged, match="read them again"),
    ):
        read(server)


def test_results_that_never_come_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    with breaking(SEVEN, [2, *[0] * 9], 1) as server, pytest.raises(httpx.TransportError):
        read(server)
    assert len([path for path in server.asked if "/results" in path]) == 5


def test_a_job_is_waited_for_while_the_api_is_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "sleep", lambda seconds: None)
    answers = [httpx.ConnectError("restarting"), httpx.ReadError("reset"), 503, "running", 502]

    def handle(request: httpx.Request) -> httpx.Response:
        found = answers.pop(0) if answers else "completed"
        if isinstance(found, Exception):
            raise found
        return httpx.Response(found if isinstance(found, int) else 200, json={"state": found})

    made = answered_by(monkeypatch, handle)
    seen: list[str] = []
    away: list[int] = []
    done = made.wait("job_1", lambda job: seen.append(job["state"]), lambda: away.append(1))
    assert (done["state"], seen, len(away)) == ("completed", ["running", "completed"], 4)


def test_a_job_that_is_not_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = httpx.Response(404, json={"title": "Not found", "detail": "there is none"})
    made = answered_by(monkeypatch, lambda request: answer)
    with pytest.raises(ApiError, match="there is none"):
        made.wait("job_1")
