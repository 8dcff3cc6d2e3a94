"""Readers of clients' data as functions of bytes; they may raise MillraceError alone."""

import io
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from sqlalchemy import URL, create_engine

from api.auth import authenticator
from api.gateway.routing.target import Target
from api.http.errors import validated
from api.routes import calls
from api.routes.jobs import submit
from api.schemas.calls import CallRequest
from api.services.resources import Resources
from jobs import api_keys, ids
from jobs.blobs.payloads import Payloads
from jobs.errors import MillraceError
from jobs.identity import OPEN
from jobs.intake.feeding import add_lines
from jobs.intake.idempotency_key import parse_key
from jobs.intake.lines import bounded_lines
from jobs.intake.spool import Intake
from jobs.intake.validation import parse_json
from jobs.models.builtin_models import SAMPLES
from jobs.models.watcher import ModelsFile
from jobs.security import ssrf
from jobs.security.ssrf import AllowList
from jobs.settings import Settings


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """Reader and its inputs."""

    read: Callable[[bytes], None]
    corpus: Sequence[bytes]  #: valid inputs
    share: float  #: of all inputs


def ndjson(raw: bytes) -> None:
    """Reads, checks and cuts the lines of a job."""
    for model in ("echo", "minilm"):
        intake = Intake(ids.new(), "t", SAMPLES.resolve(model), strict=True, max_items=1000)
        try:
            add_lines(intake, bounded_lines(io.BytesIO(raw), 4096))
        except MillraceError as error:
            _sendable(error)
        finally:
            intake.close()


def idempotency_key(raw: bytes) -> None:
    """Parses an Idempotency-Key."""
    try:
        parse_key(raw.decode("latin-1"))
    except MillraceError as error:
        _sendable(error)


_ALLOW = AllowList.parse("localhost,10.0.0.0/8,fd00::/8")


def webhook_url(raw: bytes) -> None:
    """Checks the URL of a webhook."""
    ssrf.url_problem(raw.decode("utf-8", "surrogateescape"), _ALLOW)


def call_body(raw: bytes) -> None:
    """Runs POST /infer up to the queue."""
    try:
        request = validated(CallRequest, parse_json(raw))
        model = SAMPLES.resolve(request.model)
        calls.prepared_call(SAMPLES, Target(model), request)
        if model.engine != "minilm":
            model.size(request.input, request.params)
    except MillraceError as error:
        _sendable(error)


def credential(raw: bytes) -> None:
    """Reads the headers of a credential, up to its look-up."""
    headers = []
    for line in raw.splitlines():
        name, _, value = line.partition(b":")
        headers.append((name.strip().lower(), value.strip()))
    try:
        found = authenticator._credential(headers)
    except MillraceError as error:
        return _sendable(error)
    if api_keys.is_key(text := found.decode("latin-1")):
        api_keys.hash_key(text)
    return None


class Stored(MillraceError):
    """Replaces a transaction: the job is valid."""


def _nowhere(*_: Any, **__: Any) -> Any:
    raise Stored("it would be stored")


_SHARED = Resources(
    Settings(webhook_allow="localhost", secret_key="x" * 32),
    ModelsFile(None),
    create_engine(URL.create("postgresql+psycopg")),  # never connected
    Payloads(),
)


def job_body(raw: bytes) -> None:
    """Runs POST /jobs with JSON up to its transaction."""
    _submit(submit._submit_json, {}, raw)


def job_query(raw: bytes) -> None:
    """Runs POST /jobs with NDJSON on query parameters."""
    text = raw.decode("utf-8", "replace")
    query = {
        name: value
        for name, _, value in (part.partition("=") for part in text.split("&"))
        if name in ("model", "params", "metadata", "webhook", "priority", "expires_in_s", "class")
    }
    _submit(submit._submit_ndjson, query, b'"a"\n')


def _submit(take: Callable[..., Any], query: dict[str, str], raw: bytes) -> None:
    with mock.patch("jobs.usecases.submit.acting", _nowhere):
        try:
            take(_SHARED, OPEN, query, io.BytesIO(raw), None)
        except MillraceError as error:
            _sendable(error)


def _sendable(error: MillraceError) -> None:
    """Renders an error as a response."""
    from api.http.errors import problem_response

    problem_response(error, "req_x")


_READERS = (ndjson, idempotency_key, credential, webhook_url, call_body, job_body, job_query)
_CORPUS = tomllib.loads(Path(__file__).with_name("corpus.toml").read_text())

TARGETS: Mapping[str, Fuzzed] = {
    name: Fuzzed(read, [text.encode() for text in _CORPUS[name]["corpus"]], _CORPUS[name]["share"])
    for read in _READERS
    if (name := read.__name__)
}
