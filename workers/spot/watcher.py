"""Watcher of a spot worker: looks for the notice that its machine is about to be reclaimed.

A file that appears (an agent of the machine writes it), and the metadata service of the provider.
SIGTERM needs no look: it is a notice by itself.
"""

import logging
import ssl
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from jobs.settings import Settings
from workers.http_client.client import Client, NoResponse, TooLarge
from workers.spot.providers import ADDRESS, PROVIDERS, MetadataError

_log = logging.getLogger(__name__)
_FILE_POLL_S = 0.5
_FIRST_S = 1.0  # before the first look at a provider: the worker is still starting
_TIMEOUT_S = 30.0  # of an answer, which may wait for a change
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Notice:
    """Notice of a reclaim."""

    by: str  #: sigterm, file, aws, gcp or azure
    left_s: float  #: time until the machine goes


class Watcher:
    """Looks for notices on threads of its own, and calls `reclaimed` once, at the first.

    settings: of a spot worker (`spot_notice_s`, `spot_file`, `spot_provider`, `spot_metadata_url`).
    """

    def __init__(self, settings: Settings, reclaimed: Callable[[Notice], None]) -> None:
        self._settings, self._reclaimed = settings, reclaimed
        self._first, self._stopping = threading.Lock(), threading.Event()

    def start(self) -> None:
        """Starts a thread for the file and one for the provider, where they are declared."""
        if self._settings.spot_file:
            self._spawn(self._watch_file)
        if self._settings.spot_provider:
            self._spawn(self._watch_provider)

    def notice(self, by: str, left_s: float) -> None:
        """Takes a notice; all but the first are ignored. left_s: inf where it names no time."""
        if self._first.acquire(blocking=False):
            self._stopping.set()
            left_s = min(left_s, self._settings.spot_notice_s)
            _log.warning("this machine is reclaimed in %.0f s, says %s", left_s, by)
            self._reclaimed(Notice(by, left_s))

    def stop(self) -> None:
        """Ends the looks; a notice is taken no more."""
        self._first.acquire(blocking=False)
        self._stopping.set()

    def _spawn(self, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name="spot", daemon=True).start()

    def _watch_file(self) -> None:
        file = self._settings.spot_file
        assert file
        while not self._stopping.wait(_FILE_POLL_S):
            if file.exists():
                self.notice("file", _seconds_in(file, self._settings.spot_notice_s))

    def _watch_provider(self) -> None:
        name = self._settings.spot_provider
        provider, service = PROVIDERS[name](), Service(self._settings.spot_metadata_url or ADDRESS)
        told, pause_s = "", _FIRST_S
        while not self._stopping.wait(pause_s):
            pause_s = provider.poll_s
            try:
                left_s = provider.look(service.ask)
            except (OSError, MetadataError) as error:
                if str(error) != told:
                    told = str(error)
                    _log.warning("%s doesn't tell of reclaims: %s", service.url, error)
                continue
            told = ""
            if left_s is not None:
                self.notice(name, left_s)
        service.close()


class Service:
    """Metadata service at an address."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._client = Client(ssl.create_default_context())

    def ask(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Implements `providers.Ask`."""
        packed = [(name.encode(), value.encode()) for name, value in headers.items()]
        body = b"" if method == "PUT" else None
        if body is not None:
            packed.append((b"Content-Length", b"0"))
        try:
            answer = self._client.send(
                method, self.url + path, packed, body, timeout_s=_TIMEOUT_S, max_bytes=_MOST_BYTES
            )
        except (NoResponse, TooLarge) as error:
            raise OSError(str(error)) from error
        return answer.status, answer.body

    def close(self) -> None:
        """Closes its connections."""
        self._client.close()


def _seconds_in(file: Path, declared_s: float) -> float:
    """Returns the seconds that a file names; where it names none, those that are declared."""
    try:
        return max(0.0, float(file.read_text().strip()))
    except (OSError, ValueError):
        return declared_s
