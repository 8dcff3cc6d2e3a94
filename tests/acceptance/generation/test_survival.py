"""Streams and items while their worker is killed, frozen, stopped, or loses its engine: a client
sees one stream, and each item ends once and is billed once, with the text of an undisturbed run. A
tiny Llama in fp32 with an adapter, two real workers."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import redis
from sqlalchemy import Engine, text

from jobs.calls.keys import Keys
from jobs.calls.redis import RedisLanes
from millrace import Client
from ops.bench.probes.engines import engine_pids
from ops.supervisor.platform import Platform
from tests.support.clients import events
from tests.support.generation import adapters, tiny_llama
from tests.support.jobs import assert_invariants, completed, finish, scalar_of
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec, supervised
from tests.support.wait import PATIENCE_S, eventually

_TOKENS, _ITEMS = 400, 6
_HITS = 2  # the second interrupts what was resumed
_LEASE_S = 2.0 * pace()
_LENGTH: dict[str, Any] = {"max_tokens": _TOKENS, "min_tokens": _TOKENS}
_BASE, _ADAPTED = "tiny", "tiny:legal"
_ON_DEMAND = "sleeper"  # the same weights, which one worker has once they are asked for
#: Inputs by name. The one that a stop string ends, "stopped", is added once its text is known.
#: Names that begin with "adapted" are of the adapter.
INPUTS: dict[str, dict[str, Any]] = {
    "greedy": {"prompt": "The cat sat", "temperature": 0, **_LENGTH},
    "seeded": {"prompt": "The cat sat", "temperature": 0.9, "seed": 5, **_LENGTH},
    "choices": {"prompt": "Three cats", "temperature": 0.9, "seed": 7, "n": 2, **_LENGTH},
    "logprobs": {"prompt": "Ada has", "temperature": 0, "logprobs": 2, "echo": True, **_LENGTH},
    "adapted": {"prompt": "The cat sat", "temperature": 0, **_LENGTH},
    "adapted, seeded": {"prompt": "The cat sat", "temperature": 0.9, "seed": 5, **_LENGTH},
}
Fault = Callable[[int, threading.Event], None]


class Read:
    """A stream as its client sees it."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}  #: by choice
        self.texts: dict[int, str] = {}  #: by choice
        self.finished: list[int] = []
        self.last: dict[str, Any] = {}
        self.count = 0

    def run(self, url: str, model: str, given: dict[str, Any], **terms: Any) -> "Read":
        """Reads it to its end."""
        times = dict.fromkeys(("first_token_ms", "idle_ms", "timeout_ms"), 200_000)
        body = {"model": model, "input": given, "stream": True, **times, **terms}
        with httpx.stream("POST", f"{url}/infer", json=body, timeout=PATIENCE_S) as stream:
            assert stream.status_code == 200, stream.read()
            for event in events(stream.iter_lines()):
                self._take(event.data)
        return self

    def _take(self, event: dict[str, Any]) -> None:
        self.last = event
        if "choice" not in event:
            return
        choice, tokens = event["choice"], event.get("tokens", [])
        its = self.tokens.setdefault(choice, [])
        assert event["index"] == len(its)  # none is lost or repeated
        its += tokens
        self.texts[choice] = self.texts.get(choice, "") + event.get("text", "")
        if event.get("finish_reason"):
            self.finished.append(choice)
        self.count += 1


@pytest.fixture(scope="module")
def platform(platforms: Platforms, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tiny_llama.save(tmp_path_factory.mktemp("tiny"), max_position_embeddings=2048)
    saved = adapters.save(folder / "legal", adapters.llama_shapes(folder), seed=1)
    models = tiny_llama.entry(folder, sequences=8, limits={"slice_items": 4})
    models += adapters.entry(adapters.declared(saved))
    models += tiny_llama.entry(folder, name=_ON_DEMAND, on_demand=True)
    with platforms.running(spec(models, workers=2, lease_s=_LEASE_S)) as started:
        yield started


def model_of(name: str) -> str:
    """The model that a stream of this name asks for."""
    return _ADAPTED if name.startswith("adapted") else _BASE


Streams = dict[str, tuple[dict[str, Any], Read]]


@pytest.fixture(scope="module")
def streams(platform: Platform) -> Streams:
    """Input and stream of undisturbed ones, by name."""
    found = read_all(platform, {name: (model_of(name), its) for name, its in INPUTS.items()})
    text = found["greedy"].texts[0]
    late = {**INPUTS["greedy"], "stop": [text[250:258]], "min_tokens": 0}
    found |= read_all(platform, {"stopped": (model_of("stopped"), late)})
    return {name: (late if name == "stopped" else INPUTS[name], found[name]) for name in found}


def read_all(platform: Platform, asked: dict[str, tuple[str, dict[str, Any]]]) -> dict[str, Read]:
    """Reads streams at the same time. asked: model and input by name."""
    with ThreadPoolExecutor(len(asked)) as pool:
        reading = {name: pool.submit(Read().run, platform.url, *its) for name, its in asked.items()}
        return {name: one.result() for name, one in reading.items()}


def holder(platform: Platform, store: "redis.Redis", model: str = _BASE) -> int | None:
    """Pid of the worker that has most of the calls; None: they have ended."""
    taken = [one.decode().partition("#")[0] for one in store.hvals(Keys(f"{model}@1")("taken"))]
    if not taken:
        return None
    most = max(taken, key=taken.count)
    workers = httpx.get(f"{platform.url}/workers", timeout=60).json()["data"]
    [name] = [str(one["name"]) for one in workers if str(one["id"]) == most]
    return int(name.rpartition(":")[2])


def killed(worker: int, ended: threading.Event) -> None:
    os.kill(worker, signal.SIGKILL)


def drained(worker: int, ended: threading.Event) -> None:
    os.kill(worker, signal.SIGTERM)


def frozen(worker: int, ended: threading.Event) -> None:
    """Until all its streams have ended elsewhere: then it goes on, as a zombie."""
    os.kill(worker, signal.SIGSTOP)
    ended.wait(PATIENCE_S)
    os.kill(worker, signal.SIGCONT)


def without_engine(worker: int, ended: threading.Event) -> None:
    for child in engine_pids(worker):
        os.kill(child, signal.SIGKILL)


def test_undisturbed_streams_of_an_adapter_have_their_own_texts(streams: Streams) -> None:
    for name, adapted in (("greedy", "adapted"), ("seeded", "adapted, seeded")):
        assert streams[adapted][1].texts != streams[name][1].texts


@pytest.mark.parametrize("fault", [killed, drained, frozen, without_engine])
def test_streams_go_on_exactly_through(
    platform: Platform, store: "redis.Redis", streams: Streams, fault: Fault
) -> None:
    lanes = RedisLanes(store, "tiny@1")
    with supervised(platform):
        eventually(lambda: lanes.look("a test").replicas == 2)
        check_disturbed(platform, store, streams, fault)


def test_streams_of_a_model_on_demand_go_on_once_another_worker_has_loaded_it(
    platform: Platform, store: "redis.Redis", streams: Streams
) -> None:
    body = {"model": _ON_DEMAND, "input": {"prompt": "The cat", "max_tokens": 4}}

    def answer() -> httpx.Response:
        return httpx.post(f"{platform.url}/infer", json=body, timeout=PATIENCE_S)

    refused = answer()
    assert (refused.status_code, refused.json()["code"]) == (503, "no_worker")
    assert "loaded on demand" in refused.json()["detail"]
    assert int(refused.headers["Retry-After"]) > 0
    its = {name: one for name, one in streams.items() if model_of(name) == _BASE}
    with supervised(platform):
        eventually(lambda: answer().status_code == 200)
        lanes = RedisLanes(store, f"{_ON_DEMAND}@1")
        assert lanes.look("a test").replicas == 1
        check_disturbed(platform, store, its, killed, _ON_DEMAND)


def check_disturbed(
    platform: Platform, store: "redis.Redis", streams: Streams, fault: Fault, model: str = ""
) -> None:
    """Streams through a fault of their worker have the texts of undisturbed ones. model: of all of
    them; "": their own."""

    def disturbed() -> dict[str, Read] | None:
        """None where all have ended before the fault."""
        ended, found = threading.Event(), {name: Read() for name in streams}
        with ThreadPoolExecutor(len(found) + 1) as pool:
            reading = [
                pool.submit(found[name].run, platform.url, model or model_of(name), given)
                for name, (given, _) in streams.items()
            ]
            eventually(lambda: all(stream.count > 20 for stream in found.values()))
            worker = holder(platform, store, model or _BASE)
            acting = worker and pool.submit(fault, worker, ended)
            for one in reading:
                one.result()
            ended.set()
            if acting:
                acting.result()
        return found if acting else None

    found = eventually(disturbed) or {}
    for name, (_, expected) in streams.items():
        stream = found[name]
        assert stream.texts == expected.texts, name
        assert stream.tokens == expected.tokens, name
        assert sorted(stream.finished) == sorted(expected.finished)
        usages = [one.last["usage"] for one in (stream, expected)]
        assert len({(one["prompt_tokens"], one["completion_tokens"]) for one in usages}) == 1


def inputs() -> list[dict[str, Any]]:
    """Greedy and seeded items, some of two choices, some with logprobs."""
    kinds: list[dict[str, Any]] = [
        {"temperature": 0, **_LENGTH},
        {"temperature": 0.9, "seed": 5, **_LENGTH},
        {"temperature": 0.9, "seed": 7, "n": 2, "max_tokens": 350, "min_tokens": 300},
        {"temperature": 0.7, "seed": 9, "logprobs": 2, **_LENGTH},
    ]
    return [{"prompt": f"The cat {n} sat", **kinds[n % len(kinds)]} for n in range(_ITEMS)]


@pytest.fixture(scope="module")
def items(client: Client) -> dict[str, list[Any]]:
    """Outputs of undisturbed ones, by model."""
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


def frozen_beyond_its_lease(worker: int, ended: threading.Event) -> None:
    """It goes on once others have its slices."""
    os.kill(worker, signal.SIGSTOP)
    threading.Timer(3 * _LEASE_S, os.kill, (worker, signal.SIGCONT)).start()


def test_undisturbed_items_of_an_adapter_have_their_own_texts(items: dict[str, list[Any]]) -> None:
    assert all(a != b for a, b in zip(items[_BASE], items[_ADAPTED], strict=True))


@pytest.mark.parametrize("fault", [killed, drained, frozen_beyond_its_lease])
def test_items_end_once_with_the_text_of_an_undisturbed_run(
    platform: Platform, client: Client, database: Engine, items: dict[str, list[Any]], fault: Fault
) -> None:
    """Items of the model and of its adapter share the workers."""
    hit, jobs = set[int](), dict[str, str]()

    def next_to_hit() -> Any:
        """A worker that is busy with the jobs; True: they have ended, though one was hit."""
        if jobs and not completed(client, *jobs.values()):
            return busy_worker(database, hit)
        jobs.update({} if hit else {one: client.jobs.submit(one, inputs()).id for one in items})
        return bool(hit)

    with supervised(platform):
        for _ in range(_HITS):
            found = eventually(next_to_hit)
            if found is True:
                break
            hit.add(found[0])
            fault(found[1], threading.Event())
        eventually(lambda: completed(client, *jobs.values()))
        for model, job in jobs.items():
            assert outputs(client, job) == items[model]
            tokens = sum(tokens for _, tokens in items[model])
            assert scalar_of(platform, job, _BILLED) == tokens
        with database.connect() as tx:
            assert not tx.scalar(text("SELECT sum(cardinality(tokens)) FROM checkpoints"))
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


def test_calls_go_to_who_has_their_beginning(platform: Platform, database: Engine) -> None:
    def ready() -> bool:
        query = "SELECT count(*) FROM workers WHERE state = 'ready' AND ended_at IS NULL"
        with database.connect() as tx:
            return tx.scalar(text(query)) == 2

    eventually(ready)
    cached = [_cached_of_second(platform.url, n) for n in range(16)]
    assert sum(map(bool, cached)) >= 13  # a worker that just looks may be faster


def _cached_of_second(url: str, n: int) -> int:
    """Cached tokens of the second of two calls that begin alike."""
    beginning = f"beginning {n}: " + "one two three " * 45
    for question in ("who?", "why?"):
        body = {"model": "tiny", "input": {"prompt": beginning + question, "max_tokens": 8}}
        answer = httpx.post(f"{url}/infer", json={**body, "timeout_ms": 60_000}, timeout=90)
        assert answer.status_code == 200, answer.text
    usage = answer.json()["output"]["usage"]
    return int(usage["prompt_tokens_details"]["cached_tokens"])
