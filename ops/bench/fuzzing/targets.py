"""Readers of clients' data as functions of bytes; they may raise MillraceError alone."""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from sqlalchemy import URL, Engine, create_engine

from api.auth import authenticator
from api.http.errors import validated
from api.routes import calls
from api.routes.jobs import submit
from api.schemas.calls import CallRequest
from api.services.resources import Resources
from jobs import api_keys, ids, ssrf
from jobs.blobs.payloads import Payloads
from jobs.errors import MillraceError
from jobs.identity import OPEN
from jobs.intake.idempotency_key import parse_key
from jobs.intake.spool import Intake, add_lines, bounded_lines
from jobs.intake.validation import parse_json
from jobs.models.builtin_models import SAMPLES
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.ssrf import AllowList

Target = Callable[[bytes], None]


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """Reader and its inputs."""

    read: Target
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
        calls._check(model, request)
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
    return _looked_up(found)


def _looked_up(found: bytes) -> None:
    if text := api_keys.is_key(found.decode("latin-1")) and found.decode("latin-1"):
        api_keys.hash_key(text)


class Stored(MillraceError):
    """Replaces a transaction: the job is valid."""


def _nowhere(*_: Any, **__: Any) -> Any:
    raise Stored("it would be stored")


def _resources() -> Resources:
    settings = Settings(webhook_allow="localhost", secret_key="x" * 32)
    database: Engine = create_engine(URL.create("postgresql+psycopg"))  # never connected
    return Resources(settings, ModelsFile(None), database, Payloads())


_SHARED = _resources()


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


_ITEMS = [
    b'"a text"\n"another"\n',
    b'{"custom_id":"a-1","input":"text"}\n{"custom_id":"a-2","input":[1,2.5,{"x":null}]}\n',
    b'{"input":"text","params":{"normalize":true,"truncate":12}}\n',
    b'"\\u00e9\\ud83d\\ude00 \xc3\xa9"\n\n  "b"\r\n',
    b'{"input":{"deep":[[[["x"]]]]}}\n3\nnull\ntrue\n-1.5e3\n',
]
_JOBS = [
    b'{"model":"minilm","items":["a","b"]}',
    b'{"model":"echo@1","items":[{"custom_id":"a","input":"x","params":{}}],"params":{},'
    b'"metadata":{"k":"v"},"class":"bulk","priority":-3,"expires_in_s":60,'
    b'"on_invalid":"fail_item","webhook":{"url":"https://example.com/hook"}}',
    b'{"model":"minilm","items":["a"],"params":{"truncate":20},"expires_in_s":null}',
]
_CALLS = [
    b'{"model":"echo","input":"text"}',
    b'{"model":"minilm@1","input":"text","params":{"normalize":false,"truncate":9},'
    b'"timeout_ms":200,"class":"standard"}',
    b'{"model":"echo","input":{"a":[1,2,{"b":null}]},"timeout_ms":3.0}',
]
_QUERIES = [
    b'model=echo&params={"a":1}&metadata={"k":"v"}&priority=3&expires_in_s=60&class=bulk',
    b'model=minilm@1&webhook={"url":"https://example.com/"}&expires_in_s=null',
]
_KEYS = [
    b'"8e03978e-40d5-43dd-bc93-6894a57f9324"',
    b"8e03978e-40d5-43dd-bc93-6894a57f9324",
    b'"a \\"quoted\\" \\\\ key";p=1;q="x";r=:YQ==:;s=?1',
    b'  "k"  ',
]
_HEADERS = [
    b"authorization: Bearer mk_" + b"a" * 43,
    b"Authorization:bearer  eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln",
    b"x-api-key: mk_" + b"Z" * 43 + b"\nhost: x",
    b"authorization: Basic dTpw\nx-api-key: mk_x",
]
_URLS = [
    b"https://example.com/hook?a=b",
    b"http://localhost:8080/x",
    b"https://[2606:4700::1111]:443/",
    b"https://user:pass@10.0.0.1/#f",
    b"https://[::ffff:127.0.0.1]/",
    b"https://xn--bcher-kva.example/%20",
    b"https://0x7f.1/",
]

TARGETS: Mapping[str, Fuzzed] = {
    "ndjson": Fuzzed(ndjson, _ITEMS, 0.2),
    "idempotency_key": Fuzzed(idempotency_key, _KEYS, 0.2),
    "credential": Fuzzed(credential, _HEADERS, 0.05),
    "webhook_url": Fuzzed(webhook_url, _URLS, 0.2),
    "call_body": Fuzzed(call_body, _CALLS, 0.15),
    "job_body": Fuzzed(job_body, _JOBS, 0.1),
    "job_query": Fuzzed(job_query, _QUERIES, 0.1),
}
