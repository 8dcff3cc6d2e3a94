"""A host that is full refuses calls with the time after which it has room, end to end."""

import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx

from ops.supervisor.platform import Platform
from tests.support.models.entries import model
from tests.support.platforms import GENERATING
from tests.support.wait import PATIENCE_S, eventually

# a prompt of 1,000 words takes 2 s; two long answers take all blocks; a hundred have places
TARGET = {"target_ttft_ms": 1500, "sequences": 100}
MODELS = model("prompts", "echo_chat", **TARGET, step_ms=5.0, prefill_us=2000.0, blocks=65536)
MODELS += model("blocks", "echo_chat", **TARGET, step_ms=50.0, blocks=32, context_tokens=512)
PLATFORM = GENERATING
_WORDS = re.compile(r"would take about (\d+) ms; (\d+) ms are left for it")


def asked(model: str, words: int, tokens: int) -> dict[str, Any]:
    sampling = {"max_tokens": tokens, "min_tokens": tokens}
    return {"model": model, "input": {"prompt": "word " * words, **sampling}}


def ask(platform: Platform, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{platform.url}/infer", json=body, timeout=PATIENCE_S)


def refused(platform: Platform, body: dict[str, Any]) -> httpx.Response | None:
    answer = ask(platform, body)
    return answer if answer.status_code == 429 else None


def check(answer: httpx.Response, longest_ms: float) -> None:
    """Retry-After is the time until the answer would be in time, and up to half as much more."""
    problem = answer.json()
    assert problem["code"] == "predicted_wait", problem
    words = _WORDS.search(problem["detail"])
    assert words, problem
    needed_ms, left_ms = map(float, words.groups())
    assert left_ms < needed_ms < longest_ms
    over_ms = max(20.0, needed_ms - left_ms)
    assert over_ms - 2 <= float(answer.headers["Retry-After-Ms"]) <= 1.5 * over_ms + 2


def test_calls_whose_first_token_would_be_late_are_refused(platform: Platform) -> None:
    eventually(lambda: ask(platform, asked("prompts", 5, 5)).status_code == 200)
    long = asked("prompts", 1000, 5)
    with ThreadPoolExecutor(8) as pool:
        burst = list[Future[httpx.Response]]()

        def refused_beside_a_burst() -> httpx.Response | None:
            """Asks beside a new burst: a call that came before its prediction waits for all."""
            burst.extend(pool.submit(ask, platform, long) for _ in range(8))
            return refused(platform, asked("prompts", 5, 5))

        check(eventually(refused_beside_a_burst), 60_000)
        assert any(one.result().status_code == 200 for one in burst)
    eventually(lambda: ask(platform, asked("prompts", 5, 5)).status_code == 200)


@contextmanager
def begun(platform: Platform, body: dict[str, Any]) -> Iterator[httpx.Response]:
    """A stream, once it has a first token; or its refusal."""
    body = {**body, "stream": True, "timeout_ms": 600_000}
    with httpx.stream("POST", f"{platform.url}/infer", json=body, timeout=PATIENCE_S) as stream:
        if stream.status_code == 200:
            lines = stream.iter_lines()  # which close the stream when they are forgotten
            next(lines)
            yield stream
            del lines
        else:
            stream.read()
            yield stream


def test_calls_that_find_no_kv_blocks_are_refused(platform: Platform) -> None:
    """Of 100 places few are taken when the blocks are."""
    long = asked("blocks", 5, 400)
    eventually(lambda: ask(platform, asked("blocks", 5, 5)).status_code == 200)
    with ExitStack() as streams:
        answers = list[httpx.Response]()

        def full() -> bool:
            answers.append(streams.enter_context(begun(platform, long)))
            return answers[-1].status_code == 429

        eventually(full)
        assert len(answers) < 20
        check(answers[-1], 600_000)
        short = eventually(lambda: refused(platform, asked("blocks", 5, 5)))
        check(short, 600_000)
    eventually(lambda: ask(platform, asked("blocks", 5, 5)).status_code == 200)
