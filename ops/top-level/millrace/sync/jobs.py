# Generated from millrace.aio by ops/generate_sync_client.py; change it there.
"""Jobs: submit, show, wait for and change them, and read their results."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from millrace import clock
from millrace.clock import Deadline
from millrace.errors import WaitTimeout
from millrace.inputs.lines import lines_of
from millrace.objects import Job, Object
from millrace.progress import Progress, progress_of
from millrace.retries import Polls
from millrace.sync.results import Reader, Results, leaving_says_how_to_come_back, polled
from millrace.sync.transport import Transport
from millrace.wire import Request, found_by, idempotency, without_none

_PAGE = 100  # jobs of a page


class Jobs:
    """The jobs of an api."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def submit(
        self,
        model: str,
        inputs: Any,
        *,
        column: str = "",
        id_column: str = "",
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
        timeout_s: float | None = None,
        **terms: Any,
    ) -> Job:
        """Stores a job; once this returns, no failure loses it.

        inputs: a list or any iterable of texts, JSON values, Items or lines of NDJSON as bytes; a
        table, whose inputs are in `column` (and custom_ids in `id_column`); or the path of a file
        of JSON lines, CSV or texts. They are streamed. idempotency_key: repeating it with the same
        inputs returns the same job (default: a new key, for retries). name, labels: to find the job
        by. terms: further fields of the job: params, metadata, priority, expires_in_s, webhook,
        output, … Raises InputError, APIError.
        """
        request = Request(
            "POST",
            "/jobs",
            {"model": model, **found_by(name, labels), **terms},
            lines=lines_of(inputs, column, id_column),
            headers=idempotency(idempotency_key),
        )
        return Job((self._transport.send(request, Deadline(timeout_s))).json())

    def create(self, *, idempotency_key: str | None = None, **fields: Any) -> Job:
        """Stores a job of one JSON object: with `items`, or `input`, a file or an object in S3 that
        the platform reads itself. Raises APIError."""
        request = Request("POST", "/jobs", json=fields, headers=idempotency(idempotency_key))
        return Job((self._transport.send(request)).json())

    def get(self, id: str) -> Job:
        """Returns a job. Raises NotFoundError."""
        return Job((self._transport.send(Request("GET", f"/jobs/{id}"))).json())

    def list(
        self,
        *,
        state: str | None = None,
        model: str | None = None,
        name: str | None = None,
        label: str | Iterable[str] | None = None,
        limit: int | None = None,
        after: str | None = None,
    ) -> Iterator[Job]:
        """Yields jobs, the newest first, a page at a time as they are read.

        state, model: only such jobs; name: part of their name; label: `key:value`, or several,
        which they all have; limit: the most; after: only jobs older than this one.
        """
        left = limit
        labels = [label] if isinstance(label, str) else list(label or ())
        while left is None or left > 0:
            query = {"state": state, "model": model, "name": name, "label": labels, "after": after}
            query["limit"] = str(_PAGE if left is None else min(left, _PAGE))
            request = Request("GET", "/jobs", without_none(query))
            page = (self._transport.send(request)).json()
            for job in page["data"]:
                yield Job(job)
            left = None if left is None else left - len(page["data"])
            after = page["next"]
            if not after:
                return

    def wait(
        self,
        id: str,
        *,
        timeout_s: float | None = None,
        progress: bool | Progress | None = None,
    ) -> Job:
        """Waits until a job has ended and its output is written; outlasts restarts of the api.

        progress: shows a bar (default: on a terminal). Ctrl-C leaves the job running. Raises
        WaitTimeout, which does so too, and APIError.
        """
        deadline, polls, before = Deadline(timeout_s), Polls(), None
        with leaving_says_how_to_come_back(id):
            own = progress if isinstance(progress, Progress) else Progress()
            job = polled(self._transport, id, deadline, own.away)
            with closing(progress_of(progress, job)) as bar:
                while True:
                    bar.show(job)
                    if job.has_ended and not job.is_writing:
                        return job
                    if deadline.passed:
                        raise WaitTimeout(id, timeout_s or 0.0)
                    pause_s = polls.pause_s(found=job["counts"] != before)
                    before = job["counts"]
                    clock.sleep(deadline.left_s(pause_s))
                    job = polled(self._transport, id, deadline, bar.away)

    def results(
        self,
        id: str,
        *,
        after: int = -1,
        wait: bool = True,
        timeout_s: float | None = None,
        **query: Any,
    ) -> Results:
        """Returns an iterator over the results in order, which goes on where a connection breaks.

        after: only those after this seq; wait: waits for those that are not there yet, for so many
        seconds at most; False: ends with those so far. query: `outcome="failed"` gives those alone;
        `gaps=True` those so far, past items without one. Iterating raises JobChanged, JobFailed,
        WaitTimeout, APIError.
        """
        reader = Reader(
            self._transport,
            id,
            after=after,
            wait=wait and not query.get("gaps"),
            query=without_none(query),
            deadline=Deadline(timeout_s),
        )
        return Results(reader)

    def cancel(self, id: str) -> Job:
        """Cancels a job; the results that are there are kept."""
        return self._verb(id, "cancel")

    def pause(self, id: str) -> Job:
        """Pauses a job: nothing more of it is started."""
        return self._verb(id, "pause")

    def resume(self, id: str) -> Job:
        """Resumes a paused job."""
        return self._verb(id, "resume")

    def retry(self, id: str) -> Job:
        """Runs the items of an ended job again that did not succeed.

        Sent again only where it wasn't taken: the job may have run and ended again meanwhile.
        """
        return self._verb(id, "retry", repeatable=False)

    def resubmit(self, id: str, *, idempotency_key: str | None = None, **terms: Any) -> Job:
        """Stores a new job of the items of another one; its metadata name that one.

        terms: in place of those of that job: model, params, name, labels, …; `items`: "all", or
        "unsuccessful" of an ended job. Raises APIError.
        """
        headers = idempotency(idempotency_key)
        request = Request("POST", f"/jobs/{id}/resubmit", json=terms, headers=headers)
        return Job((self._transport.send(request)).json())

    def _verb(self, id: str, verb: str, *, repeatable: bool = True) -> Job:
        request = Request("POST", f"/jobs/{id}/{verb}", repeatable=repeatable)
        return Job((self._transport.send(request)).json())

    def delete(self, id: str) -> None:
        """Deletes an ended job, with its items and results, for ever."""
        self._transport.send(Request("DELETE", f"/jobs/{id}"))

    def item(self, id: str, seq: int) -> Object:
        """Returns an item: its input, outcome, launch, and where its time went."""
        return Object((self._transport.send(Request("GET", f"/jobs/{id}/items/{seq}"))).json())
