"""Load of a server that generates, read from its /metrics while its model is used.

Known are vLLM, SGLang, llama.cpp and TGI, by the names of their metrics. Any other server is asked
once in a while, in case that another one is there by then.
"""

import re
import threading
from collections.abc import Callable
from urllib.parse import urlsplit

from workers.http_client.client import NoResponse, Response, TooLarge

NEARLY_FULL = 0.9
"""Share of the KV cache in use from which the rest is for calls, and for sequences that grow."""

_EVERY_S = 1.0
_SOON_S = 0.25  # while requests wait: for the next step of the server, or for longer
_AGAIN_S = 60.0  # where nothing was found
_USAGE = (
    b"vllm:kv_cache_usage_perc", b"vllm:gpu_cache_usage_perc", b"sglang:token_usage",
    b"llamacpp:kv_cache_usage_ratio",
)  # fmt: skip
_WAITING = (
    b"vllm:num_requests_waiting", b"sglang:num_queue_reqs", b"llamacpp:requests_deferred",
    b"tgi_queue_size",
)  # fmt: skip
_SAMPLE = re.compile(
    rb"^(" + b"|".join(_USAGE + _WAITING) + rb")(?:\{(.*)\})? ([0-9.]+(?:[eE][+-]?[0-9]+)?)\s*$",
    re.MULTILINE,
)


class ServerLoad:
    """Reads the metrics on a thread of its own, about once a second after each `use`.

    get: sends a GET for a path; url: that of the API, which ends in /v1."""

    def __init__(self, get: Callable[[str], Response], url: str) -> None:
        self._get = get
        self._path = urlsplit(url).path.rstrip("/").removesuffix("/v1") + "/metrics"
        self.full = False  #: its KV cache is nearly full, or requests wait; False: also not known
        self.ranks = False  #: requests may have a priority, as vLLM's have
        self._used, self._closed = threading.Event(), threading.Event()
        self._used.set()
        self._thread = threading.Thread(target=self._run, name="upstream-load", daemon=True)
        self._thread.start()

    def use(self) -> None:
        """Tells it that the model is used now; costs nothing."""
        self._used.set()

    def close(self) -> None:
        """Ends the thread."""
        self._closed.set()
        self._used.set()
        self._thread.join()

    def _run(self) -> None:
        waited = False
        while not self._closed.is_set():
            self._used.clear()
            text = self._read()
            engines = engine_loads(text)
            known = bool(engines)
            self.full = known and all(full or (waits and waited) for full, waits in engines)
            self.ranks = b"\nvllm:" in text
            waited = known and all(full or waits for full, waits in engines)
            self._closed.wait(_SOON_S if waited else _EVERY_S if known else _AGAIN_S)
            self._used.wait()

    def _read(self) -> bytes:
        """Returns the text of the metrics; b"" where there are none."""
        try:
            response = self._get(self._path)
        except (NoResponse, TooLarge):
            return b""
        return response.body if response.status == 200 else b""


def engine_loads(text: bytes) -> list[tuple[bool, bool]]:
    """Returns for each engine of a server (one, or several by data parallelism) if its KV cache is
    nearly full, and if requests wait for it; nothing where the text doesn't tell."""
    full, waits = set[bytes](), set[bytes]()
    found = _SAMPLE.findall(text)
    for name, engine, value in found:
        if name in _WAITING and float(value) > 0:
            waits.add(engine)
        elif name in _USAGE and float(value) >= NEARLY_FULL:
            full.add(engine)
    return [(engine in full, engine in waits) for engine in {engine for _, engine, _ in found}]
