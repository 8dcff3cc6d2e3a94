"""Outcomes of responses, for the input and for the limiter.

2xx                       served
429                       too much: tried again when it says
503                       the same where it says when; else failed for now
400, 413, 415, 422        the input is at fault, and fails alone
408, 425, any other 5xx   failed for now
401, 403, 404, 3xx, …     not set up as the models file says: no other try would work
"""

from collections.abc import Callable

import orjson

from jobs.clock import jitter
from workers.engines.protocol import InvalidInput, Permanent, RateLimited, Transient
from workers.engines.upstream.limiter import Verdict
from workers.http_client.client import Response

_THE_INPUT = (400, 413, 415, 422)
_FOR_NOW = (408, 425)
_MAX_MESSAGE = 300  # characters of an upstream's message
_SPREAD = 0.2  # of the delay, over which requests refused together come back

Failure = InvalidInput | Transient | Permanent


def verdict(status: int) -> Verdict:
    """Returns what a status says about the upstream."""
    if 200 <= status < 300:
        return "served"
    if status in (429, 503):
        return "refused"
    return "failed" if status in _FOR_NOW or status >= 500 else "answered"


def pause_s(response: Response) -> float | None:
    """Returns for how long a refusing upstream asks to be left alone, s."""
    if response.status not in (429, 503):
        return None
    return response.retry_after_s


def failure(response: Response, message: str) -> Failure | None:
    """Returns the failure of the input; None if it was served. `message` is the upstream's, as far
    as it may be repeated."""
    status = response.status
    text = f"upstream answered {status}{message and ': '}{message}"
    if 200 <= status < 300:
        return None
    wait_s = pause_s(response)
    if status == 429 or wait_s is not None:
        wait_s = wait_s or 0.0
        return RateLimited(text, wait_s + jitter(_SPREAD * wait_s))
    if verdict(status) != "answered":
        return Transient(text)
    if status in _THE_INPUT:
        return InvalidInput(text)
    if 300 <= status < 400:
        text += "; redirects are not followed"
    return Permanent(f"{text} (its address, model or key in the models file may be wrong)")


def message_of(response: Response, hide: Callable[[str], str]) -> str:
    """Returns the upstream's message in one line: of an error in JSON, or the text. `hide` removes
    secrets before the text is cut."""
    try:
        text = _message(orjson.loads(response.body))
    except orjson.JSONDecodeError:
        text = response.body.decode("utf-8", "replace")
    shown = hide(text)[: 4 * _MAX_MESSAGE]
    line = " ".join("".join(c if c.isprintable() else " " for c in shown).split())
    return line if len(line) <= _MAX_MESSAGE else line[:_MAX_MESSAGE] + "…"


def _message(document: object) -> str:
    """Finds the message as OpenAI (error.message), FastAPI (detail), TEI and others write it."""
    while isinstance(document, dict):
        inner = next((document[k] for k in ("error", "message", "detail") if document.get(k)), "")
        document = orjson.dumps(inner).decode() if isinstance(inner, list) else inner
    return document if isinstance(document, str) else ""
