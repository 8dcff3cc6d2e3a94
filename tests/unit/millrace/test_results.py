"""Results are read in order to their end, though the connection breaks and the api is away."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from millrace import AsyncClient, Client, errors
from millrace.progress import Progress
from tests.unit.millrace.servers import answered_by, async_answered_by, breaking

SEVEN = [b'{"seq":%d,"outcome":"succeeded","output":"a\xe2\x80\xa8b"}' % seq for seq in range(7)]
ALL = [json.loads(line) for line in SEVEN]


def read(url: str) -> list[bytes]:
    with Client(url) as made:
        return list(made.jobs.results("job_1").lines())


def read_asynchronously(url: str) -> list[object]:
    async def results() -> list[object]:
        async with AsyncClient(url) as made:
            return [result async for result in made.jobs.results("job_1")]

    return asyncio.run(results())


@pytest.mark.parametrize(("read_all", "found"), [(read, SEVEN), (read_asynchronously, ALL)])
def test_results_go_on_where_the_connection_broke(
    pauses: list[float], read_all: Callable[[str], list[object]], found: list[object]
) -> None:
    with breaking(SEVEN, [3, 0, -1, 2, 7], 1) as server:
        assert read_all(server.url) == found
    assert server.positions == ["-1", "2", "2", "2", "4"]


def test_results_of_two_generations_are_never_mixed(pauses: list[float]) -> None:
    with (
        breaking(SEVEN, [3, 7], 1, 2) as server,
        pytest.raises(errors.JobChanged, match="read them again"),
    ):
        read(server.url)
    job = Job(2, 5)
    results = answered_by(job).jobs.results("job_1")
    assert [next(results), next(results)] == ALL[:2]
    job.generation = 2  # retried between two polls
    with pytest.raises(errors.JobChanged, match="job_1 was retried"):
        next(results)
    job = Job(7)
    mapped = answered_by(job).map("echo", ["x"] * 7)
    job.generation = 2  # before the results of the map were read
    with pytest.raises(errors.JobChanged):
        next(mapped)


def test_results_may_be_given_up_also_at_once(
    pauses: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.sync.results.OUTAGE_S", 0.0)
    with breaking(SEVEN, [2, *[0] * 9], 1) as server, pytest.raises(errors.APIConnectionError):
        read(server.url)
    assert len(server.positions) == 6
    tries: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tries.append(request)
        raise httpx.ConnectError("nobody")

    with pytest.raises(errors.APIConnectionError):
        next(answered_by(refuse).jobs.results("job_1"))
    assert len(tries) == 1


class Job:
    """An api with a job whose results appear in parts, the last of which ends it."""

    def __init__(self, *parts: int, state: str = "completed") -> None:
        self.parts, self.state, self.sent = list(parts), state, 0
        self.generation = 1

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/results"):
            job = {"id": "job_1", "generation": 1, "state": self.state, "error": {"message": "bad"}}
            return httpx.Response(202 if request.method == "POST" else 200, json=job)
        after = int(request.url.params["after"])
        assert after == self.sent - 1
        lines = SEVEN[self.sent : self.sent + self.parts.pop(0)]
        self.sent += len(lines)
        headers = {"X-Next-After": str(self.sent - 1), "X-Complete": str(not self.parts).lower()}
        headers["X-Generation"] = str(self.generation)
        content = b"".join(line + b"\n" for line in lines)
        return httpx.Response(200, content=content, headers=headers)


def test_those_of_a_running_job_are_waited_for_more_and_more_patiently(pauses: list[float]) -> None:
    results = answered_by(Job(2, 0, 0, 0, 0, 4, 0, 1)).jobs.results("job_1")
    assert next(results) == ALL[0]
    assert results.after == 0
    assert list(results) == ALL[1:]
    assert results.after == 6
    assert pauses[4] > 2 * pauses[0] > 0
    assert pauses[5] < pauses[4]


def test_they_are_those_so_far_without_waiting_or_a_wait_for_them_ends_in_time() -> None:
    assert list(answered_by(Job(2, 5)).jobs.results("job_1", wait=False)) == ALL[:2]
    results = answered_by(Job(2, 5)).jobs.results("job_1", timeout_s=0.0)
    with pytest.raises(
        errors.WaitTimeout, match="job_1 has not ended within 0 s; it goes on"
    ) as found:
        list(results)
    assert found.value.job_id == "job_1"
    assert isinstance(found.value, TimeoutError)


def test_outputs_are_those_of_items_that_succeeded() -> None:
    assert list(answered_by(Job(7)).jobs.results("job_1").outputs()) == ["a\u2028b"] * 7
    failed = {"seq": 0, "outcome": "failed", "output": None, "error": {"code": "c", "message": "m"}}
    headers = {"X-Next-After": "0", "X-Complete": "true", "X-Generation": "1"}

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json={**failed, "generation": 1}, headers=headers)

    with pytest.raises(errors.ItemError, match="item 0 failed: c: m") as found:
        next(answered_by(answer).jobs.results("job_1").outputs())
    assert found.value.result["outcome"] == "failed"
    with pytest.raises(errors.JobFailed, match="job_1 failed: bad"):  # its input could not be read
        list(answered_by(Job(0, state="failed")).jobs.results("job_1"))


class Seen(Progress):
    """Records the calls of a bar."""

    def __init__(self) -> None:
        self.count = 0
        self.notes, self.states = list[str](), list[str]()

    def read(self, results: int, failed: int) -> None:
        self.count += results

    def show(self, job: Any) -> None:
        self.states.append(job["state"])

    def away(self) -> None:
        self.states.append("away")

    def close(self, note: str = "") -> None:
        self.notes.append(note)


def test_a_map_that_is_left_says_how_to_come_back() -> None:
    seen = Seen()
    results = answered_by(Job(7)).map("echo", ["x"] * 7, progress=seen)
    assert next(results).seq == 0
    results.close()
    assert seen.count == 7
    [note] = seen.notes
    assert "come back with client.jobs.results('job_1'), or `millrace results job_1`" in note


def test_inputs_of_a_map_are_read_as_they_are_sent_and_nothing_makes_no_job() -> None:
    sent: list[bytes] = []
    job = Job(3)

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(request.read())
        return job(request)

    made = answered_by(answer)
    assert list(made.map("echo", [])) == list(made.map("echo", iter([]))) == []
    assert sent == []
    assert len(list(made.map("echo", iter("abc")))) == 3
    assert list(filter(None, sent)) == [b'"a"\n"b"\n"c"\n']


def test_ctrl_c_says_how_to_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("millrace.clock.sleep", interrupted)
    with pytest.raises(KeyboardInterrupt) as found:
        list(answered_by(Job(2, 5)).map("echo", ["x"] * 7))
    assert "client.jobs.results('job_1')" in found.value.__notes__[0]


def test_so_does_a_cancelled_task() -> None:
    async def main() -> BaseException:
        made = async_answered_by(Job(2, *[0] * 99))
        results = await made.map("echo", ["x"] * 7)
        task = asyncio.create_task(_all(results))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as found:
            await task
        return found.value

    async def _all(results: object) -> None:
        async for _ in results:  # type: ignore[attr-defined]
            pass

    assert "client.jobs.results('job_1')" in asyncio.run(main()).__notes__[0]


def test_a_job_is_waited_for_while_the_api_is_away_and_until_its_output_is_written(
    pauses: list[float],
) -> None:
    job = {"id": "job_1", "counts": {}, "state": "running"}
    answers = [job, httpx.ConnectError("restarting"), httpx.ReadError("reset"), 503, job, 502]

    def handle(request: httpx.Request) -> httpx.Response:
        found = answers.pop(0) if answers else {**job, "state": "completed"}
        if isinstance(found, Exception):
            raise found
        if isinstance(found, int):
            return httpx.Response(found)
        return httpx.Response(200, json=found)

    seen = Seen()
    done = answered_by(handle).jobs.wait("job_1", progress=seen)
    assert done.state == "completed"
    assert seen.states == ["running", *["away"] * 3, "running", "away", "completed"]
    states = ["pending", "writing", "complete"]

    def handle(request: httpx.Request) -> httpx.Response:
        output = {"state": states.pop(0)}
        job = {"id": "job_1", "counts": {}, "state": "completed", "output": output}
        return httpx.Response(200, json=job)

    assert answered_by(handle).jobs.wait("job_1").output == {"state": "complete"}


@pytest.mark.parametrize(
    ("status", "raised", "timeout_s"),
    [(404, errors.NotFoundError, None), (403, errors.PermissionDeniedError, 0.0)],
)
def test_what_no_time_would_mend_is_told_as_it_is(
    status: int, raised: type[Exception], timeout_s: float | None
) -> None:
    answer = httpx.Response(status, json={"title": "No", "detail": "there is none"})
    with pytest.raises(raised, match="there is none"):
        answered_by(lambda request: answer).jobs.wait("job_1", timeout_s=timeout_s)


RUNNING = {"id": "job_1", "counts": {}, "state": "running"}


def test_the_last_poll_has_time_for_its_answer_and_waiting_ends_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("millrace.clock.monotonic", lambda: 7.0)
    job = {**RUNNING, "state": "completed"}
    limits: list[float] = []

    def handle(request: httpx.Request) -> httpx.Response:
        limits.append(request.extensions["timeout"]["read"])
        return httpx.Response(200, json=job)

    assert answered_by(handle).jobs.wait("job_1", timeout_s=0.0).state == "completed"
    assert limits == [1.0]
    job["state"] = "running"
    with pytest.raises(errors.WaitTimeout):
        answered_by(handle).jobs.wait("job_1", timeout_s=0.0)


LATE = [httpx.ReadTimeout("late"), httpx.ReadError("reset"), httpx.Response(503)]


@pytest.mark.parametrize("failure", LATE)
def test_a_poll_that_fails_when_no_time_is_left_is_the_end_of_the_wait(
    failure: Exception | httpx.Response, pauses: list[float]
) -> None:
    def handle(request: httpx.Request) -> httpx.Response:
        if isinstance(failure, Exception):
            raise failure
        return failure

    made = answered_by(handle)
    for wait in (
        lambda: made.jobs.wait("job_1", timeout_s=0.1),
        lambda: list(made.jobs.results("job_1", timeout_s=0.1)),
    ):
        with pytest.raises(errors.WaitTimeout, match="has not ended within 0"):
            wait()
    assert sum(pauses) < 2
