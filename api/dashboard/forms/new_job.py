"""Form of a new job: its fields as those of POST /jobs, its items pasted or in a file."""

from codecs import BOM_UTF8
from collections.abc import Mapping
from functools import partial
from hashlib import sha256
from os import SEEK_END
from pathlib import PurePath
from typing import IO, Any

import orjson
from starlette.responses import Response

from api.http.multipart import Form
from api.routes.jobs import submit
from api.services.resources import Resources
from jobs.errors import Fault, Invalid, MillraceError, TooLarge
from jobs.identity import Caller
from jobs.intake import formats, validation
from jobs.intake.idempotency_key import Claim
from jobs.intake.lines import bounded_lines
from jobs.models.model import ENVELOPE_BYTES

_MIB = 1 << 20
_SUFFIXES = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json", ".txt": "text"}
_NOT_READ = {".csv", ".gz", ".parquet"}
_TERMS = ("model", "name", "class", "on_invalid")  # fields that are taken as they are


def items_of(form: Form) -> IO[bytes]:
    """Returns the file of the items at its start: the one that was chosen, or a pasted text.

    Raises Invalid where both are there, or neither, or the file is of a kind that isn't read.
    """
    pasted = form.fields.get("items", "").rstrip("\r\n")
    if form.filename:
        if pasted:
            raise _refused("file", "both", "paste items or choose a file, not both")
        if (suffix := PurePath(form.filename).suffix.lower()) in _NOT_READ:
            message = f"{suffix} is not read here: `millrace submit {form.filename}` does that"
            raise _refused("file", "not_read", message)
        return form.file
    if not pasted:
        raise _refused("items", "empty", "paste the items, or choose a file")
    form.file.write(pasted.encode())
    form.file.seek(0)
    return form.file


def fields_of(form: Form) -> dict[str, str]:
    """Returns the fields of the job as `store_form` takes them."""
    fields = {name: form.fields.get(name, "").strip() for name in (*_TERMS, *_PARSED)}
    chosen = form.fields.get("format", "")
    if chosen not in formats.FORMATS and form.filename:
        chosen = _SUFFIXES.get(PurePath(form.filename).suffix.lower(), "")
    return {**{name: text for name, text in fields.items() if text}, "format": chosen}


def claim_of(form: Form, items: IO[bytes], tenant: str) -> Claim:
    """Returns the claim of a form: sent twice as it is, it makes one job."""
    size = items.seek(0, SEEK_END)
    items.seek(0)
    sent = sorted(form.fields.items()), form.filename or "", size
    fingerprint = sha256(orjson.dumps(sent))
    return Claim(tenant, f"dashboard-{fingerprint.hexdigest()}", fingerprint.digest())


def store_form(
    resources: Resources, caller: Caller, fields: dict[str, str], body: IO[bytes],
    claim: Claim | None,
) -> Response:  # fmt: skip
    """Stores the job, as POST /jobs does. Raises Invalid with all faults."""
    faults: list[Fault] = []
    order = order_of(fields, faults)
    format_ = fields["format"] or _guessed(body)
    keep = partial(submit.store, resources, caller, order, faults, claim)
    if format_ == "json":
        return keep(array=_elements(body, resources.settings.max_json_mb * _MIB))
    if format_ == "text":
        return keep(lines=lambda most: formats.text_lines(bounded_lines(body, most)))
    return keep(lines=partial(bounded_lines, body))


def order_of(fields: Mapping[str, str], faults: list[Fault]) -> dict[str, Any]:
    """Returns the fields of a JobRequest; problems are added to `faults`."""
    order: dict[str, Any] = {name: fields[name] for name in _TERMS if name in fields}
    for name, parse in _PARSED.items():
        try:
            if name in fields:
                order[name] = parse(fields[name])
        except ValueError as error:
            faults.append(Fault((name,), "invalid", str(error)))
    return order


def labels_of(text: str) -> dict[str, str]:
    """Parses labels, `key:value` each, on lines or between commas. Raises ValueError."""
    labels = {}
    for pair in filter(None, map(str.strip, text.replace(",", "\n").splitlines())):
        key, colon, value = pair.partition(":")
        if not colon:
            raise ValueError(f"{pair[:50]!r} is no label; one is key:value")
        labels[key.strip()] = value.strip()
    return labels


def _object(text: str) -> dict[str, Any]:
    try:
        value = validation.parse_json(text.encode())
    except MillraceError as error:
        raise ValueError(error.detail) from None
    if not isinstance(value, dict):
        raise ValueError('parameters are a JSON object, such as {"truncate": 64}')
    return value


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text[:50]!r} is no whole number") from None


_PARSED = {"labels": labels_of, "params": _object, "priority": _whole}


def _guessed(body: IO[bytes]) -> formats.Format:
    head = formats.read_head(body, ENVELOPE_BYTES)
    body.seek(0)
    return formats.guess(head)


def _elements(body: IO[bytes], most_bytes: int) -> list[Any]:
    """Returns the elements of a list, or anything else as one item. Raises Malformed, TooLarge."""
    raw = body.read(most_bytes + 1)
    if len(raw) > most_bytes:
        message = f"a JSON document has {most_bytes:,} bytes at most: send JSON lines"
        raise TooLarge(message)
    document = validation.parse_json(raw.removeprefix(BOM_UTF8))
    return document if isinstance(document, list) else [document]


def _refused(name: str, code: str, message: str) -> Invalid:
    return Invalid(message, faults=[Fault((name,), code, message)])
