"""What an answer means: for who asked, and for how the upstream is asked from then on.

2xx                       served
429                       too much: tried again when it says
503                       the same where it says when; else it failed for now
400, 413, 415, 422        the input is at fault, and fails alone
408, 425, any other 5xx   it failed for now
401, 403, 404, 3xx, …     it is not set up as the models file says: nothing helps but a person
"""

from collections.abc import Callable

import orjson

from jobs.clock import jitter
from workers.engines.protocol import InvalidInput, Permanent, RateLimited, Transient
from workers.engines.upstream.limiter import Verdict
from workers.http_client.client import Response

_THE_INPUT = (400, 413, 415, 422)
_FOR_NOW = (408, 425)
_MOST_WORDS = 300  # characters of what an upstream says
_SPREAD = 0.2
"""Those that were refused together come back over so much longer."""

Failure = InvalidInput | Transient | Permanent


def verdict(status: int) -> Verdict:
    """What a status says of the upstream."""
    if 200 <= status < 300:
        return "served"
    if status in (429, 503):
        return "refused"
    return "failed" if status in _FOR_NOW or status >= 500 else "answered"


def asked_s(answer: Response) -> float | None:
    """For how long it asks to be left alone, where it refuses."""
    if answer.status not in (429, 503):
        return None
    return answer.retry_after_s


def failure(answer: Response, words: str) -> Failure | None:
    """What became of the input; None: it was served. words: what the upstream said, as far as it
    may be repeated."""
    status, said = answer.status, f"upstream answered {answer.status}{words and ': '}{words}"
    if 200 <= status < 300:
        return None
    wait_s = asked_s(answer)
    if status == 429 or wait_s is not None:
        wait_s = wait_s or 0.0
        return RateLimited(said, wait_s + jitter(_SPREAD * wait_s))
    if verdict(status) != "answered":
        return Transient(said)
    if status in _THE_INPUT:
        return InvalidInput(said)
    if 300 <= status < 400:
        said += "; redirects are not followed"
    return Permanent(f"{said} (its address, model or key in the models file may be wrong)")


def words_of(answer: Response, hide: Callable[[str], str]) -> str:
    """The beginning of what it said, in one line: the message of an error in JSON, or the text.
    hide: takes out what is secret, before a cut could leave a part of it."""
    try:
        said = _message(orjson.loads(answer.body))
    except orjson.JSONDecodeError:
        said = answer.body.decode("utf-8", "replace")
    shown = hide(said)[: 4 * _MOST_WORDS]
    line = " ".join("".join(c if c.isprintable() else " " for c in shown).split())
    return line if len(line) <= _MOST_WORDS else line[:_MOST_WORDS] + "…"


def _message(document: object) -> str:
    """As OpenAI (error.message), FastAPI (detail), TEI and others (message, error) write it."""
    while isinstance(document, dict):
        inner = next((document[k] for k in ("error", "message", "detail") if document.get(k)), "")
        document = orjson.dumps(inner).decode() if isinstance(inner, list) else inner
    return document if isinstance(document, str) else ""
