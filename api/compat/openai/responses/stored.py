"""Stored responses: storing them, and reading them, their conversations and their progress."""

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import orjson

from api.compat.openai.responses.requests import ResponseBody
from api.services.resources import Resources
from jobs import ids
from jobs.blobs.payloads import resolve_row
from jobs.dialects.completions import completion_of
from jobs.dialects.responses import objects
from jobs.dialects.responses.items import Item
from jobs.dialects.responses.objects import PREFIX, response_object
from jobs.dialects.responses.requests import calls_tools
from jobs.errors import Fault, Invalid, MillraceError, NotFound
from jobs.store.db import CONNECTION_ERRORS, Tx
from jobs.store.jobs import detail, read
from jobs.store.jobs import responses as store
from jobs.store.jobs.read import JobRow
from jobs.store.jobs.responses import MOST_IN_CHAIN, NewResponse, ResponseRow
from jobs.store.queue import checkpoints

_OPEN = {"running": "in_progress"}
"""Status of a response by the state of its job; other open ones are `queued`."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A response as far as it is."""

    status: str  #: OpenAI's
    text: str = ""  #: of one that runs: its text so far
    completion: Mapping[str, Any] | None = None  #: of one that succeeded in the background
    ended: Mapping[str, Any] | None = None  #: see objects.Ended; None: it has not ended


def new_response(
    id: UUID,
    tenant: str,
    body: ResponseBody,
    ended: Mapping[str, Any] | None,
    created_at: int | None = None,
) -> NewResponse:
    """Returns the row of a response. ended: None for one in the background; created_at: None where
    that is when it is stored."""
    created = {} if created_at is None else {"created_at": created_at}
    previous = body.previous_response_id
    return NewResponse(
        id=id,
        tenant=tenant,
        previous_id=parse_id(previous) if previous else None,
        request=orjson.dumps({**body.shown, **created}),
        input=orjson.dumps(body.items),
        ended=None if ended is None else orjson.dumps(ended),
    )


def save(resources: Resources, tenant: str, write: Callable[[Tx], None]) -> None:
    """Writes what a response brought in a transaction of its own; once more where that had no
    answer, since its call is paid for. Raises database errors."""
    try:
        _save(resources, tenant, write)
    except CONNECTION_ERRORS:
        _save(resources, tenant, write)


def _save(resources: Resources, tenant: str, write: Callable[[Tx], None]) -> None:
    with resources.acting(tenant) as tx:
        write(tx)


def parse_id(response_id: str) -> UUID | None:
    """Returns the UUID of a response's id; None for other texts."""
    return ids.parse(PREFIX, response_id)


def find(tx: Tx, tenant: str, response_id: str) -> ResponseRow:
    """Returns a tenant's response. Raises NotFound."""
    id = parse_id(response_id)
    row = store.get(tx, tenant, id) if id else None
    if row is None or (row.background and read.get(tx, tenant, row.id) is None):
        shown = response_id[:100]
        raise NotFound(f"Response with id {shown!r} not found: there is none, or it has expired.")
    return row


def shown_object(row: ResponseRow, progress: Progress) -> dict[str, Any]:
    """Returns the object of a stored response."""
    return response_object(
        ids.show(PREFIX, row.id),
        int(row.created_at.timestamp()),
        orjson.loads(row.request),
        progress.ended,
        status=progress.status,
    )


def progress_of(resources: Resources, tx: Tx, row: ResponseRow, *, text: bool) -> Progress:
    """Returns how far a response is. text: with the text so far of one that runs."""
    if row.ended is not None:
        ended = orjson.loads(row.ended)
        return Progress(ended["status"], ended=ended)
    job = read.get(tx, row.tenant_id, row.id)
    if job is None:
        raise NotFound("the job of this response was deleted")
    if job.cancelling_at is not None and job.state in ("cancelling", "cancelled"):
        return Progress("cancelled", ended=objects.cancelled())
    if job.finished_at is not None:
        return _end_of(resources, tx, row, job)
    so_far = checkpoints.read_item(tx, row.id, 0) if text else None
    progress = so_far.choices[0].text if so_far and so_far.choices else ""
    status = "in_progress" if progress else _OPEN.get(job.state, "queued")
    return Progress(status, text=progress)


def _end_of(resources: Resources, tx: Tx, row: ResponseRow, job: JobRow) -> Progress:
    item = detail.item(tx, row.tenant_id, row.id, 0)
    if item is None or item.outcome is None:
        words = "its result was removed at the end of its retention"
        return Progress("failed", ended=objects.failed("results_pruned", words))
    result = resolve_row(
        resources.payloads,
        {"outcome": item.outcome, "output": item.output, "error": item.error},
    )
    if result["outcome"] != "succeeded":
        error = orjson.loads(result["error"] or "{}")
        words = error.get("message", f"the response is {result['outcome']}")
        return Progress("failed", ended=objects.failed(error.get("code", ""), words))
    output = result["output"]
    raw = output if isinstance(output, bytes) else output.encode()
    shown = orjson.loads(row.request)
    try:
        completion = completion_of(raw, tools=False)
        ended = objects.output_of(
            completion,
            digits_of(row.id),
            tools=calls_tools(shown),
            ended_at=int((job.finished_at or job.created_at).timestamp()),
        )
    except MillraceError as error:  # the model's output is no completion
        return Progress("failed", ended=objects.failed("invalid_output", error.detail))
    return Progress(ended["status"], completion=completion, ended=ended)


def digits_of(id: UUID) -> str:
    """Returns the digits of a response's id, of which those of its items are made."""
    return ids.show(PREFIX, id).removeprefix(f"{PREFIX}_")


def conversation(resources: Resources, tenant: str, response_id: str) -> list[Item]:
    """Returns the items of a conversation up to a response, its output included. Raises Invalid
    where it isn't there, or hasn't ended."""
    id = parse_id(response_id)
    with resources.acting(tenant) as tx:
        rows = store.chain(tx, tenant, id) if id else []
        if not rows:
            raise _not_found(response_id)
        _check_whole(rows)
        return [item for row in rows for item in _items(resources, tx, row)]


def outputs_by_id(resources: Resources, tenant: str, item_ids: Set[str]) -> dict[str, Item]:
    """Returns those of these items that stored responses of a tenant have as their output, by their
    ids. Raises Invalid where they are of too many responses."""
    wanted = {id for id in map(_response_of, item_ids) if id}
    if len(wanted) > MOST_IN_CHAIN:
        words = f"input names items of more than {MOST_IN_CHAIN} responses: begin another one"
        raise Invalid(words, faults=[Fault(("input",), "invalid_value", words)])
    found: dict[str, Item] = {}
    with resources.acting(tenant) as tx:
        for row in filter(None, (store.get(tx, tenant, id) for id in wanted)):
            found |= {item["id"]: item for item in _output(resources, tx, row)}
    return {id: item for id, item in found.items() if id in item_ids}


def _response_of(item_id: str) -> UUID | None:
    """Returns the response in whose output an item would be: its id is of the same digits, and two
    more for its place."""
    return parse_id(f"{PREFIX}_{item_id.partition('_')[2][:-2]}")


def _output(resources: Resources, tx: Tx, row: ResponseRow) -> Sequence[Item]:
    try:
        ended = progress_of(resources, tx, row, text=False).ended
    except NotFound:  # its job was deleted
        return ()
    return ended.get("output", ()) if ended else ()


def items_before(resources: Resources, tx: Tx, row: ResponseRow) -> list[Item]:
    """Returns the items that the model was given for a response: those of the conversation before
    it that are still stored, and those of its request."""
    rows = store.chain(tx, row.tenant_id, row.id)
    before = [item for one in rows[:-1] for item in _items(resources, tx, one)]
    return [*before, *orjson.loads(row.input)]


def _items(resources: Resources, tx: Tx, row: ResponseRow) -> Sequence[Item]:
    progress = progress_of(resources, tx, row, text=False)
    if progress.ended is None:
        words = f"the response {ids.show(PREFIX, row.id)} has not ended: wait for it"
        raise _invalid_previous("invalid_value", words)
    return [*orjson.loads(row.input), *progress.ended.get("output", ())]


def _check_whole(rows: Sequence[ResponseRow]) -> None:
    if len(rows) > MOST_IN_CHAIN:
        words = f"the conversation has more than {MOST_IN_CHAIN} responses: begin another one"
        raise _invalid_previous("invalid_value", words)
    for row in rows:
        if named := orjson.loads(row.request).get("conversation"):
            words = f"the response {ids.show(PREFIX, row.id)} is of a conversation"
            wanted = f"send `conversation` {named['id']!r} in place of previous_response_id"
            raise _invalid_previous("invalid_value", f"{words}: {wanted}")
    if missing := rows[0].previous_id:
        raise _not_found(ids.show(PREFIX, missing), "with which the conversation began ")


def _not_found(response_id: str, which: str = "") -> Invalid:
    words = f"Previous response with id {response_id[:100]!r} {which}not found."
    return _invalid_previous("previous_response_not_found", words)


def _invalid_previous(code: str, message: str) -> Invalid:
    return Invalid(message, faults=[Fault(("previous_response_id",), code, message)])
