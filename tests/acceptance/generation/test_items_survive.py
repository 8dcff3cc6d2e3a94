"""Items while workers are killed, drained and stopped: each ends once, with the text
of an undisturbed run, and is billed once. A tiny Llama in fp32 with an adapter, real processes."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, text

from millrace import Client
from ops.supervisor.platform import Platform
from tests.support.generation import adapters, tiny_llama
from tests.support.jobs import assert_invariants, completed, finish, scalar_of
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec, supervised
from tests.support.wait import eventually

_TOKENS, _ITEMS = 400, 6
_HITS = 2  # the second interrupts what was resumed
_LEASE_S = 2.0 * pace()
_BASE, _ADAPTED = "tiny", "tiny:legal"


def inputs() -> list[dict[str, Any]]:
    """Greedy and seeded items, some of two choices, some with logprobs."""
    length: dict[str, Any] = {"max_tokens": _TOKENS, "min_tokens": _TOKENS}
    kinds: list[dict[str, Any]] = [
        {"temperature": 0, **length},
        {"temperature": 0.9, "seed": 5, **length},
        {"temperature": 0.9, "seed": 7, "n": 2, "max_tokens": 350, "min_tokens": 300},
        {"temperature": 0.7, "seed": 9, "logprobs": 2, **length},
    ]
    return [{"prompt": f"The cat {n} sat", **kinds[n % len(kinds)]} for n in range(_ITEMS)]


@pytest.fixture(scope="module")
def platform(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_llama.save(folder, max_position_embeddings=2048)
    saved = adapters.save(folder / "legal", adapters.llama_shapes(folder), seed=1)
    models = tiny_llama.entry(folder, sequences=6, limits={"slice_items": 4})
    models += adapters.entry(adapters.declared(saved))
    with platforms.running(spec(models, workers=2, lease_s=_LEASE_S)) as started:
        yield started


@pytest.fixture(scope="module")
def undisturbed(client: Client) -> dict[str, list[Any]]:
    """Outputs by model."""
    jobs = {model: client.jobs.submit(model, inputs()).id for model in (_BASE, _ADAPTED)}
    eventually(lambda: completed(client, *jobs.values()))
    return {model: outputs(client, job) for model, job in jobs.items()}


def outputs(client: Client, job: str) -> list[Any]:
    """Choices and tokens of each result, in order."""
    lines = list(client.jobs.results(job, wait=False))
    assert [line["seq"] for line in lines] == list(range(_ITEMS))
    found = []
    for line in lines:
        output = line["output"]
        choices = [{**choice, "logprobs": _logprobs(choice)} for choice in output["choices"]]
        found.append((choices, output["usage"]["completion_tokens"]))
    return found


def _logprobs(choice: dict[str, Any]) -> Any:
    """Tokens and log probabilities; the last digits depend on the sequences beside."""
    if not choice["logprobs"]:
        return None
    values = [pytest.approx(value, abs=1e-3) for value in choice["logprobs"]["token_logprobs"]]
    return choice["logprobs"]["tokens"], choice["logprobs"]["text_offset"], values


def stored_tokens(database: Engine) -> int:
    """Tokens in all checkpoints."""
    with database.connect() as tx:
        found = tx.scalar(text("SELECT sum(cardinality(tokens)) FROM checkpoints"))
    return int(found or 0)


def busy_worker(database: Engine, passed_over: set[int]) -> tuple[int, int] | None:
    """Incarnation and pid of a worker whose items have checkpoints."""
    with database.connect() as tx:
        for incarnation, name in tx.execute(_BUSY):
            if incarnation not in passed_over:
                return incarnation, int(name.rpartition(":")[2])
    return None


_BUSY = text("""
    SELECT w.incarnation, w.name FROM workers w
    WHERE w.ended_at IS NULL AND EXISTS (
        SELECT FROM slices s JOIN checkpoints c
            ON c.job_id = s.job_id AND c.seq >= s.start AND c.seq < s.stop
        WHERE s.state = 'leased' AND s.lease_owner = w.incarnation)
""")


def _kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _drain(pid: int) -> None:
    os.kill(pid, signal.SIGTERM)


def _stop(pid: int) -> None:
    """Stops a worker, and lets it go on once others have its slices."""
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(3 * _LEASE_S, os.kill, (pid, signal.SIGCONT)).start()


def test_undisturbed_items_of_an_adapter_have_texts_of_their_own(
    undisturbed: dict[str, list[Any]],
) -> None:
    assert all(a != b for a, b in zip(undisturbed[_BASE], undisturbed[_ADAPTED], strict=True))


@pytest.mark.parametrize("fault", [_kill, _drain, _stop])
def test_items_end_once_with_the_text_of_an_undisturbed_run(
    platform: Platform,
    client: Client,
    database: Engine,
    undisturbed: dict[str, list[Any]],
    fault: Callable[[int], None],
) -> None:
    """Items of the model and of its adapter share the workers."""
    hit = set[int]()
    with supervised(platform):
        jobs = {model: client.jobs.submit(model, inputs()).id for model in undisturbed}
        for _ in range(_HITS):
            found = eventually(
                lambda: completed(client, *jobs.values()) or busy_worker(database, hit)
            )
            if found is True:
                break
            hit.add(found[0])
            fault(found[1])
        eventually(lambda: completed(client, *jobs.values()))
        assert hit
        for model, job in jobs.items():
            assert outputs(client, job) == undisturbed[model]
            tokens = sum(tokens for _, tokens in undisturbed[model])
            assert scalar_of(platform, job, _BILLED) == tokens
        assert stored_tokens(database) == 0
        assert_invariants(platform)


_BILLED = "SELECT sum(output_tokens) FROM usage WHERE job_id = :job"


def test_a_beginning_that_items_share_is_computed_once_and_billed_as_cached(
    platform: Platform, client: Client
) -> None:
    prefix = " ".join(f"w{n}" for n in range(150))
    values = [{"prompt": f"{prefix} {n:04} is?", "max_tokens": 4} for n in range(12)]
    job = client.jobs.submit("tiny", values).id
    usages = [result.output["usage"] for result in finish(platform, client, job)]
    cached = sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages)
    size = usages[0]["prompt_tokens"]
    computed = sum(usage["prompt_tokens"] for usage in usages) - cached
    assert computed < 2 * 2 * size  # once on each worker, and the rest of each item
    query = "SELECT sum(cached_tokens) FROM usage WHERE job_id = :job"
    assert scalar_of(platform, job, query) == cached


def test_calls_go_to_the_worker_that_has_their_beginning(
    platform: Platform, database: Engine
) -> None:
    eventually(lambda: ready(database) == 2)
    cached = [_cached_of_second(platform.url, n) for n in range(8)]
    assert sum(map(bool, cached)) >= 7  # a worker that just looks may be faster


def ready(database: Engine) -> int:
    query = "SELECT count(*) FROM workers WHERE state = 'ready' AND ended_at IS NULL"
    with database.connect() as tx:
        return int(tx.scalar(text(query)) or 0)


def _cached_of_second(url: str, n: int) -> int:
    """Cached tokens of the second of two calls that begin alike."""
    beginning = f"beginning {n}: " + "one two three " * 45
    for question in ("who?", "why?"):
        body = {"model": "tiny", "input": {"prompt": beginning + question, "max_tokens": 8}}
        answer = httpx.post(f"{url}/infer", json={**body, "timeout_ms": 60_000}, timeout=90)
        assert answer.status_code == 200, answer.text
    usage = answer.json()["output"]["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])
