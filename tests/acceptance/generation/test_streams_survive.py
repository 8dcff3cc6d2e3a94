"""Streams while their worker is killed, frozen, stopped, or loses its engine: a client sees one
stream, the text of an undisturbed run. A tiny Llama in fp32 with an adapter, two real workers."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
import redis

from jobs.calls.keys import Keys
from jobs.calls.redis import RedisLanes
from ops.bench.probes.engines import engine_pids
from ops.supervisor.platform import Platform
from tests.support.clients import events
from tests.support.generation import adapters, tiny_llama
from tests.support.pace import pace
from tests.support.platforms import Platforms, spec, supervised
from tests.support.wait import PATIENCE_S, eventually

_TOKENS = 400
_LEASE_S = 2.0 * pace()
_LENGTH: dict[str, Any] = {"max_tokens": _TOKENS, "min_tokens": _TOKENS}
_ADAPTED = "tiny:legal"
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
Fault = Callable[[Platform, int, threading.Event], None]


class Read:
    """A stream as its client sees it."""

    def __init__(self) -> None:
        self.tokens: dict[int, list[int]] = {}  #: by choice
        self.texts: dict[int, str] = {}  #: by choice
        self.finished: list[int] = []
        self.last: dict[str, Any] = {}
        self.count = 0

    def run(self, url: str, model: str, given: dict[str, Any]) -> "Read":
        """Reads it to its end."""
        times = dict.fromkeys(("first_token_ms", "idle_ms", "timeout_ms"), 200_000)
        body = {"model": model, "input": given, "stream": True, **times}
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
    folder = tmp_path_factory.mktemp("tiny")
    base = tiny_llama.save(folder / "base", max_position_embeddings=2048)
    saved = adapters.save(folder / "legal", adapters.llama_shapes(base), seed=1)
    models = tiny_llama.entry(base) + adapters.entry(adapters.declared(saved))
    with platforms.running(spec(models, workers=2, lease_s=_LEASE_S)) as started:
        yield started


def model_of(name: str) -> str:
    """The model that a stream of this name asks for."""
    return _ADAPTED if name.startswith("adapted") else "tiny"


@pytest.fixture(scope="module")
def undisturbed(platform: Platform) -> dict[str, tuple[dict[str, Any], Read]]:
    """Input and stream by name."""
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


def holder(platform: Platform, store: "redis.Redis") -> int:
    """Pid of the worker that has most of the calls."""
    taken = [value.decode().partition("#")[0] for value in store.hvals(Keys("tiny@1")("taken"))]
    most = max(taken, key=taken.count)
    workers = httpx.get(f"{platform.url}/workers", timeout=60).json()["data"]
    [name] = [str(one["name"]) for one in workers if str(one["id"]) == most]
    return int(name.rpartition(":")[2])


def killed(platform: Platform, worker: int, ended: threading.Event) -> None:
    os.kill(worker, signal.SIGKILL)


def stopped(platform: Platform, worker: int, ended: threading.Event) -> None:
    os.kill(worker, signal.SIGTERM)


def frozen(platform: Platform, worker: int, ended: threading.Event) -> None:
    """Until all its streams have ended elsewhere: then it goes on, as a zombie."""
    os.kill(worker, signal.SIGSTOP)
    ended.wait(PATIENCE_S)
    os.kill(worker, signal.SIGCONT)


def without_engine(platform: Platform, worker: int, ended: threading.Event) -> None:
    for child in engine_pids(worker):
        os.kill(child, signal.SIGKILL)


def test_undisturbed_streams_of_an_adapter_have_texts_of_their_own(
    undisturbed: dict[str, tuple[dict[str, Any], Read]],
) -> None:
    for name, adapted in (("greedy", "adapted"), ("seeded", "adapted, seeded")):
        assert undisturbed[adapted][1].texts != undisturbed[name][1].texts


@pytest.mark.parametrize("fault", [killed, stopped, frozen, without_engine])
def test_streams_go_on_exactly_through(
    platform: Platform,
    store: "redis.Redis",
    undisturbed: dict[str, tuple[dict[str, Any], Read]],
    fault: Fault,
) -> None:
    ended, streams = threading.Event(), {name: Read() for name in undisturbed}
    with supervised(platform), ThreadPoolExecutor(len(streams) + 1) as pool:
        lanes = RedisLanes(store, "tiny@1")
        eventually(lambda: lanes.look("a test").replicas == 2)
        reading = [
            pool.submit(streams[name].run, platform.url, model_of(name), given)
            for name, (given, _) in undisturbed.items()
        ]
        eventually(lambda: all(stream.count > 20 for stream in streams.values()))
        acting = pool.submit(fault, platform, holder(platform, store), ended)
        for one in reading:
            one.result()
        ended.set()
        acting.result()
    for name, (_, expected) in undisturbed.items():
        stream = streams[name]
        assert stream.texts == expected.texts, name
        assert stream.tokens == expected.tokens, name
        assert sorted(stream.finished) == sorted(expected.finished)
        usages = [one.last["usage"] for one in (stream, expected)]
        assert len({(one["prompt_tokens"], one["completion_tokens"]) for one in usages}) == 1
