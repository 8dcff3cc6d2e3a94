"""Submission of a message batch: a job for each model that its requests name, stored in one
transaction.

The first job is the batch. It lists the others, its parts, whose own dialect keeps them out of the
lists of batches.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from itertools import chain
from typing import IO, Any
from uuid import UUID

import orjson

from api.services.resources import Resources
from jobs import ids
from jobs.dialects.anthropic import item_of, model_of
from jobs.errors import Fault, Invalid, Malformed, UnknownModel
from jobs.identity import Caller
from jobs.intake import invalid_lines, validation
from jobs.intake.free_space import DiskFloor
from jobs.intake.idempotency_key import Claim
from jobs.intake.spool import MAX_FAULTS
from jobs.models.registry import Registry
from jobs.store.db import Tx
from jobs.store.jobs import read as reading
from jobs.store.jobs.idempotency import find, find_batch, lock_batch
from jobs.store.jobs.read import JobRow
from jobs.usecases.submit import Order, Submission, prepare, store_batch

DIALECT, PART_DIALECT = "anthropic", "anthropic_part"
_MIB = 1 << 20
_DAY_S = 86_400.0
_DUPLICATE = "duplicate_custom_id"


def submit_once(
    resources: Resources, body: IO[bytes], caller: Caller, claim: Claim | None, retries: bool
) -> tuple[list[JobRow], bool]:
    """Returns the jobs of the batch, and True if it existed: under the same key or, without one,
    from a request that this one retries. Result and errors can be pickled."""
    raw = body.read()
    fingerprint = sha256(raw).hexdigest()
    with resources.acting(caller.tenant) as tx:
        job_id = None
        if claim:
            stored = find(tx, claim)
            job_id = stored.job_id if stored else None
        elif retries:
            job_id = find_batch(tx, caller.tenant, fingerprint, DIALECT)
        if job_id:
            return jobs_of(tx, [reading.one(tx, caller.tenant, job_id)])[0], True
    requests = _requests(raw, resources.settings.max_items)

    def before(tx: Tx) -> None:
        if claim:  # it has a lock of its own
            return
        lock_batch(tx, caller.tenant, fingerprint)
        if retries and (made := find_batch(tx, caller.tenant, fingerprint, DIALECT)):
            raise _Made(made)

    try:
        with ExitStack() as stack:
            new = _prepared(stack, resources, requests, caller, claim, fingerprint)
            stored_jobs = store_batch(resources.database, new, resources.notifier, before=before)
            return stored_jobs, False
    except _Made as error:
        with resources.acting(caller.tenant) as tx:
            return jobs_of(tx, [reading.one(tx, caller.tenant, error.job_id)])[0], True


class _Made(Exception):
    """Says that the try before, which was still being stored, has made the batch."""

    def __init__(self, job_id: UUID) -> None:
        super().__init__(job_id)
        self.job_id = job_id


def jobs_of(tx: Tx, batches: Sequence[JobRow]) -> list[list[JobRow]]:
    """Returns the jobs of each batch: itself, then its parts, without those that were deleted."""
    named = [_part_ids(batch) for batch in batches]
    parts = list(chain.from_iterable(named))
    found = {row.id: row for row in reading.get_many(tx, parts)} if parts else {}
    return [
        [batch, *(found[id] for id in its if id in found)]
        for batch, its in zip(batches, named, strict=True)
    ]


def _part_ids(batch: JobRow) -> list[UUID]:
    return [UUID(id) for id in orjson.loads(batch.asked or "{}").get("parts", ())]


@dataclass(frozen=True, slots=True)
class _Requests:
    """Requests of a batch by the model that they name."""

    on_invalid: str  #: reject the batch, or fail its invalid requests
    items: list[Any] = field(default_factory=list)  #: of all requests, in their order
    faults: list[Fault] = field(default_factory=list)  #: up to one more than are listed
    places: dict[str, list[int]] = field(default_factory=dict)  #: positions of a model's requests
    failing: list[int] = field(default_factory=list)  #: positions of those without a usable model

    def fail(self, n: int, *faults: Fault) -> None:
        """Adds faults of a request; where it fails alone, an item that fails stands for it."""
        if self.on_invalid == "reject":
            self.faults.extend(faults)
        elif faults:
            self.items[n] = {
                "custom_id": validation.id_of(self.items[n]),
                "input": invalid_lines.value_of(faults[0]),
            }


def _requests(raw: bytes, most: int) -> _Requests:
    """Reads the requests of a body. Raises Malformed, and Invalid where they are too many."""
    fields = validation.parse_json(raw)
    requests = fields.get("requests") if isinstance(fields, dict) else None
    if not isinstance(requests, list) or not requests:
        raise Malformed("the body must be an object with requests, an array of at least one")
    on_invalid = fields.get("on_invalid", "reject")
    if on_invalid not in ("reject", "fail_item"):
        message = 'on_invalid must be "reject" or "fail_item"'
        raise Invalid(message, faults=[Fault(("on_invalid",), "invalid_value", message)])
    if len(requests) > most:
        message = f"a batch has at most {most} requests"
        raise Invalid(message, faults=[Fault(("requests",), "too_many", message)])
    read, first = _Requests(on_invalid), dict[str, int]()
    for n, request in enumerate(requests):
        item, found = item_of(request, ("requests", n))
        read.items.append(item)
        if model := model_of(request):
            read.places.setdefault(model, []).append(n)
        else:
            read.failing.append(n)
            if isinstance(request, dict) and isinstance(request.get("params"), dict):
                found.append(_model_fault(n, "missing", "the request names no model"))
        custom_id = item["custom_id"]
        if isinstance(custom_id, str) and (earlier := first.setdefault(custom_id, n)) != n:
            message = f"custom_id is already that of request {earlier}"
            found.append(Fault(("requests", n, "custom_id"), _DUPLICATE, message))
        read.fail(n, *found)
        if len(read.faults) > MAX_FAULTS:
            break
    return read


def _prepared(
    stack: ExitStack,
    resources: Resources,
    requests: _Requests,
    caller: Caller,
    claim: Claim | None,
    fingerprint: str,
) -> list[Submission]:
    """Checks and spools the job of each model; the stack closes them. Raises Invalid with the
    faults of all requests, and UnknownModel where they name one model, which isn't there."""
    faults, submissions = requests.faults, list[Submission]()
    models = resources.models_of(caller.tenant)
    for model, places in _usable_models(models, requests, caller.tenant).items():
        try:
            asked = {"model": model, "request": fingerprint}
            if submissions:
                asked = {"model": model, "batch": ids.show("msgbatch", submissions[0].job.id)}
            submission = prepare(
                models,
                caller.tenant,
                Order(model, expires_in_s=_DAY_S, on_invalid=requests.on_invalid),
                array=[requests.items[n] for n in places],
                max_items=resources.settings.max_items,
                max_bytes=resources.settings.max_spool_mb * _MIB,
                floor=DiskFloor.from_settings(resources.settings),
                payloads=resources.payloads,
                limits=caller.limits,
                claim=None if submissions else claim,
                key=caller.key_id,
                dialect=PART_DIALECT if submissions else DIALECT,
                asked=asked,
                place=partial(_place_of, places),
            )
        except Invalid as error:
            faults += _request_faults(error.faults)
        else:
            submissions.append(stack.enter_context(closing(submission)))
    if faults:
        faults.sort(key=_position)
        number = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise Invalid(f"{number}, nothing was stored", faults=faults[:MAX_FAULTS])
    return _with_parts(submissions)


def _usable_models(models: Registry, requests: _Requests, tenant: str) -> dict[str, list[int]]:
    """Returns the positions of requests by the models that serve them. Requests for others are
    faults or, where they fail alone, go with the first of these. Raises UnknownModel where they
    name one model, which isn't there."""
    usable = dict(requests.places)
    for model, places in requests.places.items():
        try:
            task = models.resolve(model, tenant).effective_task
            problem = "" if task == "chat" else f"{model} does {task}, not chat"
        except UnknownModel as error:
            if len(requests.places) == 1:
                raise
            problem = error.detail
        if problem:
            del usable[model]
            requests.failing.extend(places)
            for n in places if requests.on_invalid == "fail_item" else places[:1]:
                requests.fail(n, _model_fault(n, "model", problem))
    if requests.on_invalid == "fail_item":
        if usable:
            first = next(iter(usable))
            usable[first] = sorted([*usable[first], *requests.failing])
        else:
            message = "no request names a chat model that is served here"
            requests.faults.append(Fault(("requests",), "model", message))
    return usable


def _place_of(places: Sequence[int], index: int) -> tuple[str | int, ...]:
    return "requests", places[index]


def _model_fault(n: int, code: str, message: str) -> Fault:
    return Fault(("requests", n, "params", "model"), code, message)


def _position(fault: Fault) -> int:
    place = fault.loc[1] if len(fault.loc) > 1 else 0
    return place if isinstance(place, int) else 0


def _with_parts(submissions: list[Submission]) -> list[Submission]:
    """Lists the parts in the first job."""
    first, *parts = submissions
    if parts:
        asked = orjson.loads(first.job.asked or "{}")
        asked["parts"] = [str(part.job.id) for part in parts]
        job = replace(first.job, asked=orjson.dumps(asked).decode())
        submissions[0] = replace(first, job=job)
    return submissions


def _request_faults(faults: Iterable[Fault]) -> list[Fault]:
    """Translates the locations of faults from items to the client's requests. Duplicate ids are
    found among the requests of all models."""
    found = []
    for fault in faults:
        if fault.code == _DUPLICATE:
            continue
        loc = list(fault.loc)
        loc[2:3] = ["params"] if loc[2:3] == ["input"] else loc[2:3]
        found.append(Fault(tuple(loc), fault.code, fault.message))
    return found
