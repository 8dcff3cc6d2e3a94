"""Tenant that takes all it can get: `python -m ops.bench.load.hostile URL KEY`.

Sends until its standard input ends, each kind of request over connections of its own; then prints
the counts of each kind's statuses as a line of JSON. It runs only while a core is idle: it stands
for clients on other machines.
"""

import itertools
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Generator
from http.client import HTTPConnection, HTTPException
from typing import NamedTuple
from urllib.parse import urlsplit

JSON, NDJSON = "application/json", "application/x-ndjson"
_TIMEOUT_S = 60.0
_BOUNDARY = "7d3f0c"


class Sent(NamedTuple):
    """Request: method, path, body and its type."""

    method: str
    path: str
    body: bytes = b""
    type: str = JSON


#: Gets the body of each response.
Requests = Generator[Sent, bytes, None]


def _call(value: str) -> bytes:
    return f'{{"model":"echo","input":{value}}}'.encode()


def _nested(count: int) -> bytes:
    return _call(f"[{'[],' * count}[]]")


def _lines(count: int, size: int) -> bytes:
    return b"".join(b'"%06d%s"\n' % (n, b"x" * size) for n in range(count))


def _form() -> bytes:
    """Multipart form of a file of 50,000 requests, each with a fault."""
    start, field = f"--{_BOUNDARY}\r\n", "content-disposition: form-data; name="
    purpose = f'{start}{field}"purpose"\r\n\r\nbatch\r\n'
    file = f'{start}{field}"file"; filename="a.jsonl"\r\n\r\n'
    line = '{"custom_id":"%d","method":"POST","url":"/v1/nowhere","body":{}}\n'
    lines = "".join(line % n for n in range(50_000))
    return f"{purpose}{file}{lines}\r\n--{_BOUNDARY}--\r\n".encode()


def _refused() -> Requests:
    bodies = [
        _nested(1_200_000),
        _nested(87_000),
        _call("1" * 65_000),
        _call("[" * 900 + "]" * 900),
    ]
    for body in itertools.cycle(bodies):
        yield Sent("POST", "/infer", body)


def _valid() -> Requests:
    body = _call(json.dumps("x" * 60_000))
    while True:
        yield Sent("POST", "/infer", body)


def _large() -> Requests:
    bodies = [_lines(20_000, 200), _lines(900, 60_000), _lines(4, 16 << 20)]
    for body in itertools.cycle(bodies):
        yield Sent("POST", "/jobs?model=echo", body, NDJSON)


def _imports() -> Requests:
    form, type = _form(), f"multipart/form-data; boundary={_BOUNDARY}"
    while True:
        file = json.loads((yield Sent("POST", "/v1/files", form, type))).get("id", "file_unknown")
        batch = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
        yield Sent("POST", "/v1/batches", json.dumps(batch).encode())


def _reads() -> Requests:
    while True:
        yield Sent("GET", "/jobs?limit=500")
        yield Sent("GET", "/usage")


def _verbs() -> Requests:
    while True:
        yield Sent("POST", "/jobs/job_00000000000000000000000000/cancel")


def _calls() -> Requests:
    for n in itertools.count():
        yield Sent("POST", "/infer", _call(str(n)))


#: Requests and connections of each kind.
KINDS: dict[str, tuple[Callable[[], Requests], int]] = {
    "refused bodies": (_refused, 4),
    "valid bodies": (_valid, 2),
    "large bodies": (_large, 2),
    "imports": (_imports, 1),
    "reads": (_reads, 8),
    "verbs": (_verbs, 2),
    "calls": (_calls, 4),
}


def _send(
    url: str, key: str, requests: Requests, counts: "Counter[str]", stop: threading.Event
) -> None:
    address = urlsplit(url)
    connection = HTTPConnection(str(address.hostname), address.port, timeout=_TIMEOUT_S)
    request = next(requests)
    while not stop.is_set():
        headers = {"Authorization": f"Bearer {key}", "Content-Type": request.type}
        try:
            connection.request(request.method, request.path, request.body, headers)
            response = connection.getresponse()
            content = response.read()
            counts[str(response.status)] += 1
        except (OSError, HTTPException):  # the api closes connections of bodies that it refuses
            content = b"{}"
            counts["closed"] += 1
            connection.close()
        request = requests.send(content)


def main(url: str, key: str) -> None:
    """Sends until standard input ends."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    stop = threading.Event()
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    threads = [
        threading.Thread(target=_send, args=(url, key, requests(), counts[kind], stop), daemon=True)
        for kind, (requests, connections) in KINDS.items()
        for _ in range(connections)
    ]
    for thread in threads:
        thread.start()
    print("null", flush=True)
    sys.stdin.read()
    stop.set()
    print(json.dumps({kind: dict(found) for kind, found in counts.items()}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
