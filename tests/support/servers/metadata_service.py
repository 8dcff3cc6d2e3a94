"""A metadata service on loopback that speaks as those of AWS, Google Cloud and Azure do."""

import json
import threading
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.support.servers.receiver import HttpServer, Received, Reply

NAME = "vm-7"  #: of the machine
TOKEN = "a-session-token"


class MetadataService(HttpServer):
    """left_s: time until the machine is reclaimed; None: it isn't. asked: paths, in order."""

    protocol = "HTTP/1.1"

    def __init__(self) -> None:
        super().__init__()
        self.url = self.origin
        self.left_s: float | None = None
        self.machine = NAME  #: that Azure's event is about
        self.asked: list[str] = []
        self.changed = threading.Condition()

    def reclaim(self, left_s: float) -> None:
        with self.changed:
            self.left_s = left_s
            self.changed.notify_all()

    @property
    def _at(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.left_s or 0.0)

    def respond(self, request: Received) -> Reply:
        self.asked.append(request.path)
        status, body = self.answer(request.method, request.path, request.headers)
        return Reply(status, {}, body)

    def answer(self, method: str, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
        where, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        if where == "/latest/api/token":
            ttl = headers.get("x-aws-ec2-metadata-token-ttl-seconds")
            return (200, TOKEN.encode()) if method == "PUT" and ttl else (400, b"")
        if where == "/latest/meta-data/spot/instance-action":
            if headers.get("x-aws-ec2-metadata-token") != TOKEN:
                return 401, b""
            if self.left_s is None:
                return 404, b"<html>not found</html>"
            at = f"{self._at:%Y-%m-%dT%H:%M:%SZ}"
            return 200, json.dumps({"action": "terminate", "time": at}).encode()
        if where == "/computeMetadata/v1/instance/preempted":
            if headers.get("metadata-flavor") != "Google":
                return 403, b""
            if "wait_for_change" in query:
                with self.changed:
                    waits_s = float(query["timeout_sec"][0])
                    self.changed.wait_for(lambda: self.left_s is not None, waits_s)
            return 200, b"FALSE" if self.left_s is None else b"TRUE"
        if headers.get("metadata") != "true":
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


def metadata_service() -> MetadataService:
    return MetadataService()
