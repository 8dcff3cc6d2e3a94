"""Heads without an end, bodies that trickle, nesting without a floor: each is refused, and costs
the others nothing."""

import gzip
import json
import socket
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from api.http.connections.connection import MAX_HEAD, MAX_HEADERS, MAX_URL
from api.middleware.fast_path import MAX_QUERY_PARAMETERS
from ops.supervisor.platform import Platform
from tests.support.platforms import spec
from tests.support.wait import Deadline, pause, slowdown

pytestmark = pytest.mark.nightly

PATIENCE_S = max(6.0, 0.5 * slowdown())  # longer than this process may stand still
AND_MORE_S = 20.0
JSON = {"Content-Type": "application/json"}
NDJSON = {"Content-Type": "application/x-ndjson"}
PLATFORM = spec(max_json_mb=1, slow_client_s=PATIENCE_S)


class Raw:
    """A connection, byte by byte."""

    def __init__(self, platform: Platform) -> None:
        self.socket = socket.create_connection(
            (platform.settings.host, platform.settings.port), timeout=PATIENCE_S + 60
        )

    def send(self, data: bytes) -> bool:
        """Returns False once the other side has closed."""
        try:
            self.socket.sendall(data)
        except OSError:
            return False
        return True

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        """All that comes until the other side closes: status, headers, body."""
        got = b""
        try:
            while data := self.socket.recv(65_536):
                got += data
        except ConnectionResetError:
            pass
        head, _, body = got.partition(b"\r\n\r\n")
        lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        return int(lines[0].split()[1]) if got else 0, headers, body

    def refused(self) -> int:
        status, headers, body = self.answer()
        assert headers["content-type"] == "application/problem+json"
        assert headers["connection"] == "close"
        assert headers["x-content-type-options"] == "nosniff"
        assert json.loads(body)["status"] == status
        return status


@pytest.fixture
def raw(platform: Platform) -> Iterator[Raw]:
    made = Raw(platform)
    yield made
    made.socket.close()


HEAD = b"POST /infer HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
CALL = b'{"model": "echo", "input": "x"}'


def test_who_says_no_more_is_cut_off(platform: Platform) -> None:
    """In the head, in a body, and before a word, when there is nothing to answer."""
    begun = b"Content-Length: 5000\r\n\r\n" + CALL
    said = [HEAD, HEAD + begun, HEAD.replace(b"/infer", b"/jobs") + begun, b""]
    since_s, limit = time.monotonic(), Deadline(PATIENCE_S + AND_MORE_S)
    with ExitStack() as stack:
        *begins, silent = (Raw(platform) for _ in said)
        for raw, data in zip((*begins, silent), said, strict=True):
            stack.enter_context(raw.socket)
            raw.send(data)
        assert [raw.refused() for raw in begins] == [400] * 3
        assert time.monotonic() - since_s > PATIENCE_S * 0.9
        assert silent.answer() == (0, {}, b"")
    limit.check("the end of all four")


def test_one_byte_at_a_time_gives_a_head_no_more_time(raw: Raw) -> None:
    limit = Deadline(PATIENCE_S + AND_MORE_S)
    raw.socket.settimeout(0.01)
    for byte in HEAD * 100:
        raw.send(bytes([byte]))
        try:
            if raw.socket.recv(1, socket.MSG_PEEK):
                break
        except TimeoutError:
            pass
    raw.socket.settimeout(PATIENCE_S + 60)
    assert raw.refused() == 400
    limit.check("the end of a head of single bytes")


def test_a_chunked_body_that_trickles_for_ever_is_cut_off(raw: Raw) -> None:
    raw.send(HEAD.replace(b"/infer", b"/jobs") + b"Transfer-Encoding: chunked\r\n\r\n")
    limit = Deadline(PATIENCE_S + AND_MORE_S)
    while raw.send(b"1\r\n \r\n"):
        limit.check("the end of a body that trickles")
        pause(0.02)  # a slow client is the point


def test_a_body_that_keeps_coming_is_taken_however_long_it_takes(raw: Raw) -> None:
    parts, part = 20, b'"%b"\n' % (b"x" * 1000)
    head = HEAD.replace(b"/infer", b"/jobs?model=echo").replace(b"/json", b"/x-ndjson")
    raw.send(head + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % (parts * len(part)))
    for _ in range(parts):
        assert raw.send(part)
        pause(PATIENCE_S / 8)
    assert raw.answer()[0] == 202


def test_a_call_that_takes_long_is_not_cut_off(platform: Platform, raw: Raw) -> None:
    """Time is limited for requests alone; an answer may take long."""
    stream = httpx.post(f"{platform.url}/jobs", json={"model": "echo", "items": ["a"]}).json()
    raw.send(b"GET /jobs/%b/events HTTP/1.1\r\nHost: localhost\r\n\r\n" % stream["id"].encode())
    assert raw.socket.recv(10).startswith(b"HTTP/1.1 2")


def test_a_connection_is_kept_alive_between_calls(raw: Raw) -> None:
    for pause_s in (0.0, PATIENCE_S * 1.5):  # longer than any request may take
        pause(pause_s)
        raw.send(HEAD + b"Content-Length: %d\r\n\r\n" % len(CALL) + CALL)
        got = b""
        while not got.endswith(b"}"):
            got += raw.socket.recv(65_536)
        assert got.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * (MAX_HEAD + 10), 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * (MAX_HEADERS + 1) + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 100_000, 431),
        (b"GET /?" + b"a" * MAX_URL + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"no http\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /livez HTTP/1.0\r\nHost: localhost\r\nhost: other\r\n\r\n", 400),
        (HEAD + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
        (HEAD + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ],
)
def test_heads_beyond_all_bounds_are_refused(raw: Raw, head: bytes, status: int) -> None:
    raw.send(head)
    assert raw.refused() == status


def test_an_old_client_needs_no_host(raw: Raw) -> None:
    raw.send(b"GET /livez HTTP/1.0\r\n\r\n")
    assert raw.answer()[0] == 200


@pytest.mark.parametrize("before", [b"1;x=", b"0\r\nx: "], ids=["extension", "trailer"])
def test_what_stands_around_chunks_without_end_is_cut_off(raw: Raw, before: bytes) -> None:
    raw.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + before)
    sent = 0
    while raw.send(b"a" * 10_000) and sent < 100_000_000:
        sent += 10_000
    assert sent < 20_000_000  # what sockets buffer


def test_a_trailer_is_no_header(raw: Raw) -> None:
    chunked = b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n"
    raw.send(HEAD + chunked % (len(CALL), CALL) + b"Idempotency-Key: not, readable\r\n\r\n")
    assert raw.answer()[0] == 200


def test_a_body_without_end_after_its_answer_is_cut_off(raw: Raw) -> None:
    raw.send(HEAD + b"Content-Length: 999999999999\r\n\r\n")
    limit = Deadline(PATIENCE_S + AND_MORE_S)
    while raw.send(b"x" * 100_000):
        limit.check("the end of a body without an end")


def test_a_query_of_many_parameters_is_refused(platform: Platform) -> None:
    query = "&".join("a=1" for _ in range(MAX_QUERY_PARAMETERS + 1))
    assert httpx.get(f"{platform.url}/jobs?{query}").status_code == 400


@pytest.mark.parametrize("depth", [1000, 100_000])
@pytest.mark.parametrize(
    "body",
    [
        '{"model": "echo", "input": %s}',
        '{"model": "echo", "items": [%s]}',
        '{"model": "echo", "items": ["a"], "params": %s}',
        '{"model": "echo", "items": ["a"], "metadata": {"a": %s}}',
        '{"model": "echo", "items": ["a"], "x": %s}',
    ],
)
@pytest.mark.parametrize("brackets", ["[]", "{}"])
def test_deep_nesting_is_refused_wherever_it_stands(
    platform: Platform, body: str, depth: int, brackets: str
) -> None:
    opening, closing = ("[", "]") if brackets == "[]" else ('{"a":', "}")
    content = body % (opening * depth + "1" + closing * depth)
    path = "/infer" if "input" in body else "/jobs"
    # A child process that parses large bodies may have to start first.
    answer = httpx.post(f"{platform.url}{path}", content=content, headers=JSON)
    assert answer.status_code in (400, 422), answer.text[:300]


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_deep_nesting_in_lines_and_queries_is_refused(platform: Platform, depth: int) -> None:
    deep = "[" * depth + "]" * depth
    url = f"{platform.url}/jobs?model=echo"
    answer = httpx.post(url, content=deep, headers=NDJSON)
    assert (answer.status_code, answer.json()["errors"][0]["line"]) == (422, 1)
    for name in ("params", "metadata", "webhook"):
        answer = httpx.post(
            f"{url}&{name}={deep[:4000]}", content='"a"', headers=NDJSON, timeout=60
        )
        assert answer.status_code == 422


@pytest.mark.parametrize("path", ["/infer", "/jobs", "/v2/repository/index"])
def test_bodies_may_be_compressed_and_no_further_than_others(platform: Platform, path: str) -> None:
    said = {"/infer": {"input": "x" * 9}, "/jobs": {"items": ["x"] * 9}}
    body = {"model": "echo", **said[path]} if path in said else {"ready": True}
    sent = json.dumps(body).encode()
    url = f"{platform.url}{path}"
    plain = httpx.post(url, content=sent, headers=JSON)
    for coding in ("gzip", "deflate"):
        pack = gzip.compress if coding == "gzip" else zlib.compress
        headers = JSON | {"Content-Encoding": coding}
        packed = httpx.post(url, content=pack(sent), headers=headers)
        assert packed.status_code == plain.status_code, packed.text
        assert httpx.post(url, content=sent, headers=headers).status_code == 400
        bomb = pack(b" " * (64 << 20))
        assert httpx.post(url, content=bomb, headers=headers, timeout=60).status_code == 413
    for coding in ("br", "zstd", "identity, gzip"):
        headers = JSON | {"Content-Encoding": coding}
        assert httpx.post(url, content=sent, headers=headers).status_code == 415


def test_lines_and_files_may_be_compressed(platform: Platform) -> None:
    lines = gzip.compress(b'"a"\n' * 30_000)
    headers = NDJSON | {"Content-Encoding": "gzip"}
    job = httpx.post(f"{platform.url}/jobs?model=echo", content=lines, headers=headers)
    assert job.json()["counts"]["total"] == 30_000
    parts = {"files": {"file": ("a.jsonl", b"{}")}, "data": {"purpose": "batch"}}
    form = httpx.Request("POST", "http://x", **parts)  # type: ignore[arg-type]
    headers = {"Content-Type": form.headers["Content-Type"], "Content-Encoding": "gzip"}
    content = gzip.compress(form.read())
    stored = httpx.post(f"{platform.url}/v1/files", content=content, headers=headers)
    assert (stored.status_code, stored.json()["bytes"]) == (200, 2)


@pytest.mark.parametrize(
    "path", ["/livez", "/jobs", "/jobs/job_x", "/nowhere", "/openapi.json", "/docs"]
)
def test_every_answer_says_how_it_may_be_used(platform: Platform, path: str) -> None:
    headers = httpx.get(f"{platform.url}{path}", headers={"Origin": "https://evil"}).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert not [name for name in headers if name.startswith("access-control-")]
    assert "strict-transport-security" not in headers  # this is no https
    if path == "/docs":
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy


def test_nobody_has_bodies_read_without_end_before_who_they_are_is_asked(
    platform: Platform, raw: Raw
) -> None:
    raw.send(HEAD.replace(b"/infer", b"/keys") + b"Content-Length: %d\r\n\r\n{" % (1 << 30))
    assert raw.socket.recv(12) == b"HTTP/1.1 413"
    endless = (b" " * 65_536 for _ in range(32))
    answer = httpx.post(f"{platform.url}/keys", content=endless, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
