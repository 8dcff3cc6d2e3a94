"""Processes for large bodies: what they answer, and how they end."""

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import httpx
import psutil
import pytest

from api.http.errors import to_error
from api.services.intake.ingest_pool import IngestPool
from api.services.resources import Resources
from jobs import errors
from jobs.errors import Fault, Invalid, MillraceError, TooLarge, Unavailable
from jobs.limits import Bound
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from ops.processes.ports import free_port
from tests.support.cases import each
from tests.support.processes import spawned
from tests.support.wait import PATIENCE_S, eventually, gone

ROOT = Path(__file__).parents[5]
NO_DATABASE = Settings(database_url="postgresql+psycopg://nowhere/", redis_url="redis://nowhere")
LARGE = 40_000  # lines of more than a megabyte together
STUCK = """
import asyncio, sys, tempfile
from api.services.intake.ingest_pool import IngestPool
from jobs.models.watcher import ModelsFile
from jobs.settings import load
from tests.integration.api.services.intake.test_ingest_pool import stick

async def main():
    await IngestPool(load(), ModelsFile(None)).run("t", stick, tempfile.TemporaryFile())

if __name__ == "__main__":
    asyncio.run(main())
"""


class Awkward(Exception):
    """One that can't be pickled."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.lock = threading.Lock()


def read(resources: Resources, body: IO[bytes], mark: str) -> tuple[int, str, bytes]:
    return os.getpid(), mark, body.read()


def refuse(resources: Resources, body: IO[bytes]) -> None:
    raise Invalid("no", faults=[Fault(("items", 3), "type", "not that", 4)])


def be_awkward(resources: Resources, body: IO[bytes]) -> None:
    raise Awkward("pickle me")


def die(resources: Resources, body: IO[bytes]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def write_on_a_full_disk(resources: Resources, body: IO[bytes]) -> None:
    with open("/dev/full", "wb", buffering=0) as full:
        full.write(b"x")


def grow(resources: Resources, body: IO[bytes]) -> None:
    print(len(bytearray(b"x") * (400 << 20)))
    signal.pause()


def stick(resources: Resources, body: IO[bytes]) -> None:
    print(os.getpid(), flush=True)
    signal.pause()


@pytest.fixture(scope="module")
def ingest() -> Iterator[IngestPool]:
    made = IngestPool(NO_DATABASE, ModelsFile(None))
    yield made
    made.stop()


@pytest.fixture
def body() -> Iterator[IO[bytes]]:
    with tempfile.SpooledTemporaryFile(10) as file:
        file.write(b"a body on disk")
        file.seek(0)
        yield file


def test_bodies_are_read_in_another_process_one_by_one(ingest: IngestPool, body: IO[bytes]) -> None:
    async def twice() -> list[tuple[int, str, bytes]]:
        return [await ingest.run("t", read, body, mark) for mark in ("first", "second")]

    (pid, *first), (second_pid, *second) = asyncio.run(twice())
    assert pid == second_pid != os.getpid()
    assert [first, second] == [["first", b"a body on disk"], ["second", b"a body on disk"]]


def test_a_refusal_comes_back_with_its_faults(ingest: IngestPool, body: IO[bytes]) -> None:
    with pytest.raises(Invalid) as caught:
        asyncio.run(ingest.run("t", refuse, body))
    assert caught.value.detail == "no"
    assert caught.value.faults == (Fault(("items", 3), "type", "not that", 4),)


def test_an_error_that_doesnt_travel_is_told_in_words(ingest: IngestPool, body: IO[bytes]) -> None:
    with pytest.raises(RuntimeError, match=r"(?s)in be_awkward.*Awkward: pickle me"):
        asyncio.run(ingest.run("t", be_awkward, body))


def test_a_killed_process_is_a_503_and_is_replaced(ingest: IngestPool, body: IO[bytes]) -> None:
    async def die_then_read() -> bytes:
        with pytest.raises(Unavailable) as caught:
            await ingest.run("t", die, body)
        assert caught.value.retryable
        assert caught.value.retry_after_s
        return (await ingest.run("t", read, body, ""))[2]

    assert asyncio.run(die_then_read()) == b"a body on disk"


def test_a_full_disk_is_a_507(ingest: IngestPool, body: IO[bytes]) -> None:
    with pytest.raises(OSError, match="No space left") as caught:
        asyncio.run(ingest.run("t", write_on_a_full_disk, body))
    error = to_error(caught.value, "req_1")
    assert (error.status, error.code, error.retryable) == (507, "insufficient_storage", True)
    assert error.retry_after_s


def test_a_body_that_needs_too_much_memory_is_a_413_and_ends_its_process(body: IO[bytes]) -> None:
    async def grow_then_read() -> bytes:
        with pytest.raises(TooLarge, match="more than 300 MiB of memory"):
            await made.run("t", grow, body)
        return (await made.run("t", read, body, ""))[2]

    made = IngestPool(NO_DATABASE.evolve(child_max_mb=300), ModelsFile(None))
    try:
        assert asyncio.run(grow_then_read()) == b"a body on disk"
    finally:
        made.stop()


def test_a_tenant_with_many_bodies_leaves_a_process_to_the_next_tenant(body: IO[bytes]) -> None:
    async def crowd() -> None:
        many = [asyncio.create_task(made.run("many", stick, body)) for _ in range(5)]
        async with asyncio.timeout(60):
            for mark in ("first", "second"):
                assert (await made.run("other", read, body, mark))[1] == mark
        assert not any(task.done() for task in many)
        for task in many[2:]:
            task.cancel()
        await asyncio.gather(*many[2:], return_exceptions=True)
        made.stop()
        ended = await asyncio.gather(*many[:2], return_exceptions=True)
        assert all(isinstance(one, Unavailable) for one in ended)

    made = IngestPool(NO_DATABASE, ModelsFile(None))
    try:
        asyncio.run(crowd())
    finally:
        made.stop()


def test_nobody_notices_that_an_idle_process_is_killed(ingest: IngestPool, body: IO[bytes]) -> None:
    async def kill_between() -> tuple[int, int]:
        first = (await ingest.run("t", read, body, ""))[0]
        os.kill(first, signal.SIGKILL)
        eventually(lambda: gone(first) and len(os.listdir(f"/proc/{first}/task")) == 1)
        return first, (await ingest.run("t", read, body, ""))[0]

    first, second = asyncio.run(kill_between())
    assert first != second


def test_a_busy_process_dies_with_its_parent_by_sigkill() -> None:
    command = [sys.executable, "-c", STUCK]
    environment = {**os.environ, **NO_DATABASE.environment()}
    with spawned(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        assert not gone(child)
        parent.kill()
        eventually(lambda: gone(child))


@pytest.fixture
def api(settings: Settings) -> Iterator[tuple[subprocess.Popen[str], str]]:
    found = settings.evolve(port=free_port())
    url, environment = f"http://127.0.0.1:{found.port}", {**os.environ, **found.environment()}

    def answers() -> bool:
        with suppress(httpx.TransportError):
            return httpx.get(f"{url}/livez").status_code == 200
        return False

    with spawned([sys.executable, "-m", "api"], cwd=ROOT, env=environment) as process:
        eventually(answers)
        yield process, url


def post(url: str, last: bytes = b'"last"') -> httpx.Response:
    body = b'"some twenty-odd letters here"\n' * LARGE + last
    headers = {"Content-Type": "application/x-ndjson"}
    return httpx.post(f"{url}/jobs?model=echo", content=body, headers=headers)


def children(pid: int) -> set[int]:
    return {child.pid for child in psutil.Process(pid).children()}


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_an_api_takes_its_ingests_with_it(
    api: tuple[subprocess.Popen[str], str], end: signal.Signals
) -> None:
    process, url = api
    of_calls = children(process.pid)
    answer = post(url)
    assert answer.status_code == 202
    assert answer.json()["counts"]["total"] == LARGE + 1
    assert answer.headers["location"] == f"/jobs/{answer.json()['id']}"
    left = children(process.pid)
    assert left > of_calls
    process.send_signal(end)
    process.wait(PATIENCE_S)
    eventually(lambda: all(map(gone, left)))


def test_large_bodies_are_refused_as_small_ones(api: tuple[subprocess.Popen[str], str]) -> None:
    answer = post(api[1], last=b"no JSON")
    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (422, "invalid")
    assert [(e["line"], e["code"]) for e in problem["errors"]] == [(LARGE + 1, "malformed")]


def made(kind: Any) -> MillraceError:
    """One with all that it can carry."""
    bound = Bound("requests_per_s", 5.0)
    for arguments, fields in (
        (("why",), {"faults": [Fault(("a", 1), "b", "c", 2)], "retry_after_s": 3}),
        (("why",), {"bound": bound, "left": 2, "retry_after_s": 3, "headers": {"a": "b"}}),
        ((bound,), {}),
        (("code", "why"), {}),
        ((), {}),
    ):
        with suppress(TypeError):
            return kind(*arguments, **fields)
    raise AssertionError(kind)


def test_every_error_survives_pickling() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind, case in each(kind for kind in kinds if issubclass(kind, Exception)):
        with case:
            sent = made(kind)
            got = pickle.loads(pickle.dumps(sent))
            assert type(got) is kind
            assert vars(got) == vars(sent)
