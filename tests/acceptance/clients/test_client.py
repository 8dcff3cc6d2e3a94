"""The Python client against a running platform, whose api is killed in the middle of everything."""

import asyncio
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from millrace import AsyncClient, Client, NotFoundError, UnprocessableEntityError
from ops.processes.children import Child
from ops.supervisor.platform import Platform
from tests.support.children import child_of
from tests.support.models.entries import function, model
from tests.support.platforms import OPEN, supervised
from tests.support.processes import interruptible
from tests.support.wait import PATIENCE_S, eventually

MODELS = model(
    "talk", "echo_chat", target_ttft_ms=60000, step_ms=20.0, context_tokens=65536, blocks=65536
) + function("paced:steady", name="slow", limits={"max_batch": 4})
PLATFORM = OPEN
ITEMS = 30_000
TEXTS = [f"text {n} " + "x" * 500 for n in range(ITEMS)]
"""Their results are many times what the buffers of a connection hold."""
WORDS = [f"w{n}" for n in range(300)]


def api(platform: Platform) -> Child:
    return child_of(platform, "api")


def test_a_map_goes_on_though_the_api_is_killed_in_its_inputs_and_its_results(
    platform: Platform, client: Client
) -> None:
    def texts() -> Iterator[str]:
        for n, text in enumerate(TEXTS):
            if n == ITEMS // 2:
                api(platform).kill()
            yield text

    name = "map whose api is killed"
    with supervised(platform):
        results = client.map("echo", texts(), progress=False, name=name)
        found = [next(results).output for _ in range(1000)]
        restarts = api(platform).restarts
        api(platform).kill()
        found += list(results.outputs())
    assert found == TEXTS
    assert api(platform).restarts > restarts
    assert [job.id for job in client.jobs.list(name=name)] == [results.job_id]


def test_so_does_an_asynchronous_one(platform: Platform) -> None:
    async def main() -> AsyncIterator[str]:
        async with AsyncClient(platform.url) as client:
            async for result in await client.map("echo", TEXTS, progress=False):
                if result.seq == 1000:
                    api(platform).kill()
                yield result.output

    async def read() -> list[str]:
        return [output async for output in main()]

    with supervised(platform):
        assert asyncio.run(read()) == TEXTS


def test_a_stream_goes_on_though_its_api_is_killed(platform: Platform, client: Client) -> None:
    messages = [{"role": "user", "content": " ".join(WORDS)}]
    text, pieces = "", 0
    with supervised(platform):
        for chunk in client.chat.stream("talk", messages, temperature=0):
            text, pieces = text + chunk.text, pieces + 1
            if pieces == 20:
                api(platform).kill()
    assert text.split() == WORDS
    assert pieces > 100


def test_a_conversation_is_answered_whole(client: Client) -> None:
    answer = client.chat.create("talk", [{"role": "user", "content": "one two"}], temperature=0)
    assert answer.text.split() == ["one", "two"]


def test_ctrl_c_leaves_a_map_running_and_says_so(platform: Platform, client: Client) -> None:
    code = f"""
from millrace import Client
from millrace.progress import Progress

class Seen(Progress):
    def read(self, results, failed):
        print(results, flush=True)

inputs = [f"t{{n}}" for n in range(300)]
list(Client({platform.url!r}).map("slow", inputs, progress=Seen(), name="ctrl-c"))
"""
    with interruptible("-c", code) as mapping:
        assert mapping.stdout
        assert mapping.stdout.readline()
        mapping.send_signal(signal.SIGINT)
        _, said = mapping.communicate(timeout=PATIENCE_S)
    [job] = client.jobs.list(name="ctrl-c")
    assert f"come back with client.jobs.results('{job.id}')" in said
    assert job.state in ("running", "completed")
    assert list(client.jobs.results(job.id).outputs()) == [f"t{n}" for n in range(300)]


def test_jobs_are_paused_resumed_cancelled_retried_and_deleted(client: Client) -> None:
    job = client.jobs.submit("slow", ["x"] * 2000, priority=3, metadata={"a": "b"})
    assert client.jobs.pause(job.id).state == "paused"
    assert client.jobs.resume(job.id).state in ("queued", "running")
    assert client.jobs.cancel(job.id).state in ("cancelling", "cancelled")
    done = client.jobs.wait(job.id, timeout_s=PATIENCE_S)
    assert (done.state, done.priority, done.metadata) == ("cancelled", 3, {"a": "b"})
    assert {result.outcome for result in client.jobs.results(job.id)} >= {"cancelled"}
    again = client.jobs.resubmit(job.id, items="unsuccessful", name="again", priority=4)
    assert (again.name, again.priority, again.model) == ("again", 4, "slow")
    assert again.metadata == {"a": "b", "resubmitted_from": job.id}
    client.jobs.cancel(again.id)
    assert client.jobs.retry(job.id).generation == 2
    client.jobs.cancel(job.id)
    client.jobs.wait(job.id, timeout_s=PATIENCE_S)
    assert client.jobs.item(job.id, 0).seq == 0
    client.jobs.delete(job.id)

    def gone() -> bool:
        try:
            return client.jobs.get(job.id) is None
        except NotFoundError:
            return True

    eventually(gone)


def test_an_error_names_the_input_and_nothing_is_stored(client: Client) -> None:
    with pytest.raises(UnprocessableEntityError) as found:
        client.map("batchstring", ["fine", 5])
    assert (found.value.status, found.value.code) == (422, "invalid")
    assert "line 2" in str(found.value)
    assert found.value.request_id


def test_calls_of_many_tasks_share_a_client(platform: Platform) -> None:
    async def main() -> list[str]:
        async with AsyncClient(platform.url) as client:
            calls = (client.infer("batchstring", f"t{n}") for n in range(50))
            return [call.output for call in await asyncio.gather(*calls)]

    assert asyncio.run(main()) == [f"T{n}" for n in range(50)]
