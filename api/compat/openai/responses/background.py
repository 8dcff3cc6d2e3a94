"""Responses in the background: jobs of one item, and the streams that follow them.

A stream can begin at any event, on any api: its events follow from the stored text alone. Deltas
are cut every PIECE characters, so that each has the same number whenever it is read.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import orjson
from starlette.concurrency import run_in_threadpool

from api.compat.generation.preparation import PreparedGeneration
from api.compat.openai.conversations import stored as conversations
from api.compat.openai.responses import stored
from api.compat.openai.responses.events import Numbered, begun, ended
from api.compat.openai.responses.requests import ResponseBody
from api.compat.openai.responses.stored import Progress
from api.context import Context
from api.gateway.streaming.event_stream import KEEP_ALIVE, KEEP_ALIVE_S
from api.services.resources import Resources
from jobs import clock
from jobs.dialects.responses.objects import choice_of
from jobs.dialects.responses.output import Event, OutputBuilder
from jobs.dialects.responses.requests import calls_tools
from jobs.errors import MillraceError
from jobs.identity import Caller
from jobs.intake.free_space import DiskFloor
from jobs.intake.idempotency_key import Claim
from jobs.models.inputs.tool_calls import ToolCallParser
from jobs.store.db import Tx
from jobs.store.jobs import idempotency
from jobs.store.jobs import responses as store
from jobs.store.jobs.read import JobRow
from jobs.store.jobs.responses import ResponseRow
from jobs.usecases import submit

PIECE = 16  #: Characters of a delta.
POLL_S = 0.5  #: Time between two looks at a response that is streamed.
_EXPIRES_IN_S = 86_400.0  # of its job
_MIB = 1 << 20


def create(
    resources: Resources, caller: Caller, prepared: PreparedGeneration, claim: Claim | None
) -> tuple[bytes, bool]:
    """Stores a response and its job; returns its object as JSON, and True where another request
    with its Idempotency-Key has made it."""
    if claim:
        with resources.acting(caller.tenant) as tx:
            if found := idempotency.find(tx, claim):
                return found.answer.encode(), True
    body = prepared.body
    assert isinstance(body, ResponseBody)

    def add_response(tx: Tx, job: JobRow) -> None:
        new = stored.new_response(job.id, caller.tenant, body, None)
        store.store(tx, new, resources.settings.keep_responses_days)
        if body.conversation_id:
            conversations.await_turn(resources, tx, caller.tenant, job.id, body.conversation_id)

    def shown(job: JobRow) -> bytes:
        row = ResponseRow(
            job.id, caller.tenant, None, True, orjson.dumps(body.shown).decode(), "[]", None,
            job.created_at,
        )  # fmt: skip
        return orjson.dumps(stored.shown_object(row, Progress("queued")))

    metadata = body.shown["metadata"]
    order = submit.Order(prepared.model.key, metadata=metadata, expires_in_s=_EXPIRES_IN_S)
    submission = submit.prepare(
        resources.models_of(caller.tenant),
        caller.tenant,
        order,
        array=[{"input": orjson.loads(prepared.value)}],
        max_bytes=resources.settings.max_spool_mb * _MIB,
        floor=DiskFloor.from_settings(resources.settings),
        claim=claim,
        payloads=resources.payloads,
        limits=caller.limits,
        key=caller.key_id,
        answer=shown,
    )
    try:
        job = submit.store(resources.database, submission, resources.notifier, add_response)
    finally:
        submission.close()
    return shown(job), False


class _Follower:
    """Follows one response, and writes the events that a client lacks."""

    def __init__(self, resources: Resources, tenant: str, response_id: str, after: int) -> None:
        self._resources, self._tenant, self._id = resources, tenant, response_id
        self._numbered = Numbered(after)
        self._begun: list[Event] | None = None  # events of its beginning that are to be written
        self._tools, self._builder = False, OutputBuilder("", tools=False)
        self._fed = ""
        self.done = False

    def read(self) -> bytes:
        """Reads the response as it is now; returns the events since the last time."""
        with self._resources.acting(self._tenant) as tx:
            row = stored.find(tx, self._tenant, self._id)
            progress = stored.progress_of(self._resources, tx, row, text=True)
        written = self._numbered.write(self._events(row, progress))
        if progress.ended is None:
            return written
        self.done = True
        last = ended(stored.shown_object(row, progress))
        if progress.completion is None:
            return written + self._numbered.write_last(last)
        return written + self._numbered.write([*self._finish(progress), last])

    def _events(self, row: ResponseRow, progress: Progress) -> list[Event]:
        if self._begun is None:
            response = stored.shown_object(row, Progress("queued"))
            self._tools = calls_tools(orjson.loads(row.request))
            digits = stored.digits_of(row.id)
            self._builder = OutputBuilder(digits, tools=self._tools, piece=PIECE)
            self._begun = begun(response, queued=True)
        if progress.status == "queued":  # the last of them says that it runs
            events, self._begun = self._begun[:-1], self._begun[-1:]
            return events
        events, self._begun = self._begun, []
        return [*events, *self._feed(progress.text)]

    def _feed(self, text: str) -> list[Event]:
        if not text.startswith(self._fed):  # it ended, or was started over
            return []
        new, self._fed = text[len(self._fed) :], text
        return self._builder.feed(new)

    def _finish(self, progress: Progress) -> list[Event]:
        """Returns the events of the output that is not written yet."""
        assert progress.completion is not None
        choice = choice_of(progress.completion)
        rest = unwritten(choice["message"], self._fed, tools=self._tools)
        return self._builder.take_message(rest, complete=progress.status == "completed")


def unwritten(message: Mapping[str, Any], fed: str, *, tools: bool) -> dict[str, Any]:
    """Returns the message of a completion without the text of it that was written. Raises
    MillraceError where it is of another text.

    fed: text of which that was written. tools: the worker took calls from the whole text, an
    unfinished one that has no name yet, and with them blanks at its ends.
    """
    content, written = message.get("content") or "", fed
    if tools:
        content = content.lstrip()
        written = ToolCallParser(keeps_blanks=True).feed(fed).text.lstrip()
    if not content.startswith(written) and not (tools and content == written.rstrip()):
        raise MillraceError("the response was generated anew; retrieve it without stream")
    return {**message, "content": content[len(written) :]}


async def follow(
    context: Context, tenant: str, response_id: str, after: int
) -> AsyncGenerator[bytes, None]:
    """Yields the events of a response behind number `after`, until it has ended."""
    follower = _Follower(context, tenant, response_id, after)
    sent_s = clock.monotonic()
    while True:
        async with context.turns.place(tenant, bounded=False):
            piece = await run_in_threadpool(follower.read)
        if not piece and clock.monotonic() - sent_s >= KEEP_ALIVE_S:
            piece = KEEP_ALIVE
        if piece:
            sent_s = clock.monotonic()
            yield piece
        if follower.done:
            return
        await asyncio.sleep(POLL_S)
