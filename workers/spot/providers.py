"""Metadata services of providers: where each tells that a spot machine is about to be reclaimed.

aws     404 until then, and {"action": "terminate", "time": …} after; with a session token (IMDSv2)
gcp     FALSE until then, and TRUE after; the answer comes once it changes
azure   a document of events, of which those of the type Preempt that name this machine count
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from math import inf
from typing import Any

import orjson

from jobs import clock

ADDRESS = "http://169.254.169.254"
"""Link-local address of the metadata service, the same at all three."""

_TOKEN_S = 21_600
_TOKEN_KEPT_S = _TOKEN_S / 2
_GCP_WAITS_S = 10

Ask = Callable[[str, str, Mapping[str, str]], tuple[int, bytes]]
"""Sends a request to a path of the service, with a method and headers; returns status and body.
Raises OSError where no answer came."""


class MetadataError(Exception):
    """Raised for an answer that isn't as its provider documents it."""


@dataclass(slots=True)
class Aws:
    """EC2: `spot/instance-action` with a session token."""

    poll_s: float = 5.0  #: between two looks, as EC2's documentation advises
    _token: str = field(default="", init=False)
    _token_until_s: float = field(default=-inf, init=False)

    def look(self, ask: Ask) -> float | None:
        """Returns the seconds until the machine goes; None: there is no notice."""
        headers = {"X-aws-ec2-metadata-token": self._session(ask)}
        status, body = ask("GET", "/latest/meta-data/spot/instance-action", headers)
        if status == 401:
            self._token_until_s = -inf  # next time with a new token
        if status in (401, 404):
            return None
        notice = _json(status, body)
        return _left_s(_time(notice.get("time")))

    def _session(self, ask: Ask) -> str:
        now_s = clock.monotonic()
        if now_s >= self._token_until_s:
            ttl = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_S)}
            status, body = ask("PUT", "/latest/api/token", ttl)
            if status != 200:
                raise MetadataError(f"status {status} for a session token")
            self._token, self._token_until_s = body.decode(), now_s + _TOKEN_KEPT_S
        return self._token


@dataclass(slots=True)
class Gcp:
    """Compute Engine: `instance/preempted`, whose answer waits for a change."""

    poll_s: float = 0.5  #: between two looks, each of which waits
    _waits: bool = field(default=False, init=False)  #: it has told how it is

    def look(self, ask: Ask) -> float | None:
        """Returns the seconds until the machine goes, inf: as declared; None: there is no
        notice."""
        path = "/computeMetadata/v1/instance/preempted"
        path += f"?wait_for_change=true&timeout_sec={_GCP_WAITS_S}" if self._waits else ""
        status, body = ask("GET", path, {"Metadata-Flavor": "Google"})
        if status != 200 or body.strip() not in (b"TRUE", b"FALSE"):
            raise MetadataError(f"status {status}, neither TRUE nor FALSE")
        self._waits = True
        return inf if body.strip() == b"TRUE" else None


@dataclass(slots=True)
class Azure:
    """Virtual machines: scheduled events, which name the machines that they are about."""

    poll_s: float = 1.0  #: between two looks
    _name: str = field(default="", init=False)

    def look(self, ask: Ask) -> float | None:
        """Returns the seconds until the machine goes; None: there is no notice."""
        metadata = {"Metadata": "true"}
        if not self._name:
            path = "/metadata/instance/compute/name?api-version=2021-02-01&format=text"
            status, body = ask("GET", path, metadata)
            if status != 200 or not body:
                raise MetadataError(f"status {status} for the name of this machine")
            self._name = body.decode()
        events = ask("GET", "/metadata/scheduledevents?api-version=2020-07-01", metadata)
        its = [
            _left_s(_time(event.get("NotBefore")))
            for event in _json(*events).get("Events", ())
            if event.get("EventType") == "Preempt" and self._name in event.get("Resources", ())
        ]
        return min(its, default=None)


Provider = Aws | Gcp | Azure
PROVIDERS: Mapping[str, Callable[[], Provider]] = {"aws": Aws, "gcp": Gcp, "azure": Azure}


def _json(status: int, body: bytes) -> Mapping[str, Any]:
    if status != 200:
        raise MetadataError(f"status {status}")
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise MetadataError("no JSON") from None
    if not isinstance(found, dict):
        raise MetadataError("no JSON object")
    return found


def _time(text: object) -> datetime | None:
    """Reads a time (ISO 8601, or as in HTTP's headers); None where there is none: the event has
    begun, or the declared notice counts."""
    if not isinstance(text, str) or not text:
        return None
    for read in (datetime.fromisoformat, parsedate_to_datetime):
        try:
            found = read(text)
        except ValueError:
            continue
        return found if found.tzinfo else found.replace(tzinfo=UTC)
    return None


def _left_s(at: datetime | None) -> float:
    return inf if at is None else max(0.0, (at - clock.now()).total_seconds())
