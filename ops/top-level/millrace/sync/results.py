# Generated from millrace.aio by ops/generate_sync_client.py; change it there.
"""Results of a job in order, read to their end though connections break and apis die."""

import io
import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

from millrace import clock
from millrace.clock import Deadline
from millrace.errors import APIError, ItemError, JobChanged, JobFailed, WaitTimeout
from millrace.objects import Job, Result
from millrace.progress import Progress
from millrace.retries import OUTAGE_S, Polls, may_pass
from millrace.sync.transport import Transport, line_blocks
from millrace.wire import Request

_PAGE_RESULTS = 20_000  # of a table or an array: it is read again where its connection breaks
_LEAST_POLL_S = 1.0  # of the last poll, too, which begins when no time is left


class Results:
    """Iterator over the results of a job.

    Attributes:
        job_id: id of the job; "" where there was no input, and so no job.
    """

    def __init__(self, reader: "Reader") -> None:
        self.job_id = reader.job_id
        self._reader, self._results = reader, reader.results()

    @property
    def after(self) -> int:
        """Seq of the last result that was read; -1: none."""
        return self._reader.after

    def __iter__(self) -> Iterator[Result]:
        return self._results

    def __next__(self) -> Result:
        return next(self._results)

    def outputs(self) -> Iterator[Any]:
        """Yields the outputs alone. Raises ItemError at the first item that has none."""
        for result in self._results:
            if result["outcome"] != "succeeded":
                raise ItemError(result)
            yield result["output"]

    def lines(self) -> Iterator[bytes]:
        """Yields the results as JSON, as they came, without line ends."""
        with leaving_says_how_to_come_back(self.job_id):
            for block in self._reader.blocks():
                for line in block:
                    yield line

    def to_numpy(self) -> Any:
        """Returns the outputs as an array, [items, n] of float32 or float16, in the items' order.

        Each must be a vector of the same length: raises APIError where one isn't, and ImportError
        without numpy."""
        import numpy

        pages = [numpy.load(io.BytesIO(page)) for page in self._reader.pages("npy")]
        return numpy.concatenate(pages) if pages else numpy.empty((0, 0), numpy.float32)

    def to_arrow(self) -> Any:
        """Returns the results as a pyarrow.Table: seq, custom_id, outcome, vector (float32), output
        (JSON, of what is no vector), error (JSON), attempts, units, version.

        Raises APIError, and ImportError without pyarrow."""
        import pyarrow.ipc

        pages = [pyarrow.ipc.open_stream(page).read_all() for page in self._reader.pages("arrow")]
        return pyarrow.concat_tables(pages) if pages else pyarrow.table({})

    def to_pandas(self) -> Any:
        """Returns the table of `to_arrow` as a pandas.DataFrame. Raises as that does."""
        return (self.to_arrow()).to_pandas()

    def close(self) -> None:
        """Ends the iteration, and the connection that it has."""
        self._results.close()


class Reader:
    """Reader of the results of a job, which goes on where a connection breaks.

    wait: for results that aren't there yet; query: further parameters; generation: of the job;
    None: that of the first answer.
    """

    def __init__(
        self,
        transport: Transport,
        job_id: str,
        *,
        after: int = -1,
        wait: bool = True,
        query: dict[str, Any] | None = None,
        deadline: Deadline | None = None,
        progress: Progress | None = None,
        generation: int | None = None,
    ) -> None:
        self.job_id, self.after = job_id, after
        self._transport, self._wait, self._query = transport, wait, query or {}
        self._deadline, self._progress = deadline or Deadline(), progress or Progress()
        self._generation = generation

    def results(self) -> Generator[Result, None, None]:
        """Yields the results; closes the bar when they are left."""
        note = ""
        try:
            with leaving_says_how_to_come_back(self.job_id):
                for block in self.blocks():
                    results = [Result(json.loads(line)) for line in block]
                    failed = sum(result["outcome"] != "succeeded" for result in results)
                    self._progress.read(len(results), failed)
                    for result in results:
                        self.after = result["seq"]
                        yield result
        except GeneratorExit:  # left before the end
            note = come_back(self.job_id)
            raise
        finally:
            self._progress.close(note)

    def blocks(self) -> Iterator[list[bytes]]:
        """Yields lines, those of a chunk together, until the job has no more."""
        position, complete, polls = self.after, not self.job_id, Polls()
        retries = self._transport.retries(self._deadline, patience_s=OUTAGE_S)
        while not complete:
            before = position
            try:
                last = self._deadline.at_least(_LEAST_POLL_S)
                with self._transport.open(self._request(position), last) as response:
                    self._check_generation(int(response.headers["X-Generation"]))
                    complete = response.headers["X-Complete"] == "true" or not self._wait
                    until = int(response.headers["X-Next-After"])
                    for block in line_blocks(response):
                        position = json.loads(block[-1])["seq"]
                        retries.reset()
                        yield block
                    position = max(position, until)
            except APIError as error:
                complete = False
                with in_time(self.job_id, self._deadline):
                    pause_s = self._transport.pause_s(retries, error)
                self._progress.away()
                clock.sleep(pause_s)
                continue
            if not complete:
                self._pause(polls.pause_s(found=position > before))
        if self.job_id and self._wait and position < 0:
            self._check_input()

    def pages(self, format: str) -> Iterator[bytes]:
        """Yields tables or arrays of some results each, until the job has no more."""
        position, complete, polls = self.after, not self.job_id, Polls()
        while not complete:
            query = {**self._query, "after": position, "limit": _PAGE_RESULTS, "format": format}
            request = Request("GET", f"/jobs/{self.job_id}/results", query)
            last = self._deadline.at_least(_LEAST_POLL_S)
            with leaving_says_how_to_come_back(self.job_id), in_time(self.job_id, last):
                response = self._transport.send(
                    request, last, patience_s=OUTAGE_S, on_failure=self._progress.away
                )
            self._check_generation(int(response.headers["X-Generation"]))
            before, position = position, int(response.headers["X-Next-After"])
            if position > before:
                yield response.content
            is_full = position - before >= _PAGE_RESULTS
            complete = response.headers["X-Complete"] == "true" or not (self._wait or is_full)
            if not complete and not is_full:
                self._pause(polls.pause_s(found=position > before))
        if self.job_id and self._wait and position < 0:
            self._check_input()

    def _request(self, after: int) -> Request:
        return Request("GET", f"/jobs/{self.job_id}/results", {**self._query, "after": after})

    def _pause(self, seconds: float) -> None:
        if self._deadline.passed:
            raise WaitTimeout(self.job_id, self._deadline.seconds or 0.0)
        clock.sleep(self._deadline.left_s(seconds))

    def _check_generation(self, generation: int) -> None:
        """Raises JobChanged where the job was retried: its results differ from those read."""
        if self._generation is None:
            self._generation = generation
        if self._generation != generation:
            why = "was retried while its results were read; read them again"
            raise JobChanged(f"{self.job_id} {why}")

    def _check_input(self) -> None:
        """Raises JobFailed where there is no result since the items could not be read."""
        job = polled(self._transport, self.job_id, self._deadline, self._progress.away)
        if job["state"] == "failed":
            raise JobFailed(job)


def polled(
    transport: Transport, job_id: str, deadline: Deadline, on_failure: Callable[[], None]
) -> Job:
    """Returns a job; outlasts restarts of the api. Raises WaitTimeout, APIError.

    on_failure: called before each retry.
    """
    last = deadline.at_least(_LEAST_POLL_S)
    request = Request("GET", f"/jobs/{job_id}")
    with in_time(job_id, last):
        response = transport.send(request, last, patience_s=OUTAGE_S, on_failure=on_failure)
    return Job(response.json())


@contextmanager
def in_time(job_id: str, deadline: Deadline) -> Iterator[None]:
    """Raises WaitTimeout in place of an error that may pass, where no time is left for that."""
    try:
        yield
    except APIError as error:
        if deadline.passed and may_pass(error):
            raise WaitTimeout(job_id, deadline.seconds or 0.0) from error
        raise


@contextmanager
def leaving_says_how_to_come_back(job_id: str) -> Iterator[None]:
    """Adds to Ctrl-C how to come back to the job."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, Exception | GeneratorExit):
            error.add_note(come_back(job_id))
        raise


def come_back(job_id: str) -> str:
    """Says how to read the results of a job that goes on."""
    return (
        f"{job_id} goes on without you; come back with client.jobs.results({job_id!r}), "
        f"or `millrace results {job_id}`"
    )
