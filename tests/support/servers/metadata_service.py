"""A metadata service on loopback that speaks as those of AWS, Google Cloud and Azure do."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

NAME = "vm-7"  #: of the machine
TOKEN = "a-session-token"


class MetadataService:
    """left_s: time until the machine is reclaimed; None: it isn't. asked: paths, in order."""

    def __init__(self) -> None:
        self.left_s: float | None = None
        self.machine = NAME  #: that Azure's event is about
        self.asked: list[str] = []
        self.changed = threading.Condition()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def reclaim(self, left_s: float) -> None:
        with self.changed:
            self.left_s = left_s
            self.changed.notify_all()

    @property
    def _at(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.left_s or 0.0)

    def answer(self, method: str, path: str, headers: Any) -> tuple[int, bytes]:
        self.asked.append(path)
        where, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        if where == "/latest/api/token":
            ttl = headers.get("X-aws-ec2-metadata-token-ttl-seconds")
            return (200, TOKEN.encode()) if method == "PUT" and ttl else (400, b"")
        if where == "/latest/meta-data/spot/instance-action":
            if headers.get("X-aws-ec2-metadata-token") != TOKEN:
                return 401, b""
            if self.left_s is None:
                return 404, b"<html>not found</html>"
            at = f"{self._at:%Y-%m-%dT%H:%M:%SZ}"
            return 200, json.dumps({"action": "terminate", "time": at}).encode()
        if where == "/computeMetadata/v1/instance/preempted":
            if headers.get("Metadata-Flavor") != "Google":
                return 403, b""
            if "wait_for_change" in query:
                with self.changed:
                    waits_s = float(query["timeout_sec"][0])
                    self.changed.wait_for(lambda: self.left_s is not None, waits_s)
            return 200, b"FALSE" if self.left_s is None else b"TRUE"
        if headers.get("Metadata") != "true":
            return 400, b""
        if where == "/metadata/instance/compute/name":
            return 200, NAME.encode()
        if where == "/metadata/scheduledevents":
            return 200, json.dumps({"DocumentIncarnation": 1, "Events": self._events()}).encode()
        return 404, b""

    def _events(self) -> list[dict[str, Any]]:
        reboot = {"EventType": "Reboot", "Resources": [NAME], "NotBefore": ""}
        if self.left_s is None:
            return [reboot]
        at = format_datetime(self._at, usegmt=True)
        return [reboot, {"EventType": "Preempt", "Resources": [self.machine], "NotBefore": at}]

    def _handler(service) -> type[BaseHTTPRequestHandler]:  # noqa: N805
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = service.answer(self.command, self.path, self.headers)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_PUT = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@contextmanager
def metadata_service() -> Iterator[MetadataService]:
    """Runs one."""
    service = MetadataService()
    thread = threading.Thread(target=service.server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield service
    finally:
        service.server.shutdown()
        thread.join()
        service.server.server_close()
