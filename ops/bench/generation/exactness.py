"""Greedy texts through every API, in company and after preemptions, equal to those of `generate`;
seeded ones equal alone and in company."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jobs import clock
from ops.bench.baselines.generators import Order
from ops.bench.generation import chats
from ops.bench.generation.target import Run, Target
from ops.bench.harness.scale import Scale
from ops.bench.load import chat_apis
from ops.bench.probes import scrape
from ops.bench.results.report import Report

_COUNT, _FEW = 100, 12  #: of the job and of streams; of each other API
_TOKENS, _PREEMPT_AFTER = 32, 12
_PREEMPTIONS = "millrace_num_preemptions_total"

Bodies = Sequence[dict[str, Any]]


def measure(report: Report, scale: Scale, target: Target, alone: Run) -> None:
    """Measures shares of equal texts; `exact_share` is the least of them."""
    asked = chats.questions(int(scale.seconds(_COUNT)))
    expected = alone(Order(asked, _TOKENS, ignore_end=False)).texts
    bodies = [{**body, "temperature": 0, "max_tokens": _TOKENS} for body in asked]
    found = {
        "job": _job(target, bodies),
        "streams": target.stream(bodies),
        "preempted": _preempted(target, asked),
        "preempted_items": _preempted_items(report, target, bodies),
    }
    found |= {name: call(target, bodies[:_FEW]) for name, call in _APIS.items()}
    shares = {f"exact_share_of_{name}": _same(texts, expected) for name, texts in found.items()}
    report.add(**shares)
    report.add(exact_share=min(shares.values()), seeded_share=_seeded(target, asked))


def _job(target: Target, bodies: Bodies) -> list[str]:
    return [chats.text_of(output) for output in target.run_job(bodies).outputs]


def _preempted(target: Target, asked: Bodies) -> Sequence[str]:
    """Texts of the bare engine, where each sequence is aborted once and added again."""
    few = asked[: 2 * _FEW]
    return target.bare(
        Order(few, _TOKENS, target.places, ignore_end=False, preempt_after=_PREEMPT_AFTER)
    ).texts


def _preempted_items(report: Report, target: Target, bodies: Bodies) -> list[str]:
    """Texts of a job whose items give way to calls that come meanwhile."""
    few = bodies[: 3 * _FEW]
    before = _preemptions(target)
    with _calls_meanwhile(target, bodies):
        texts = _job(target, few)
    report.add(preempted_items=_preemptions(target) - before)
    return texts


@contextmanager
def _calls_meanwhile(target: Target, bodies: Bodies) -> Iterator[None]:
    """Streams as many calls as there are places, once and again, until it is left."""
    left = threading.Event()

    def call() -> None:
        """Sends them once items run."""
        while not left.wait(0.5):
            target.stream(bodies[: target.places])

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield
    finally:
        left.set()
        thread.join()


def _preemptions(target: Target) -> float:
    clock.sleep(0.5)  # counted beside the step
    return scrape.total(target.platform, _PREEMPTIONS, kind="item")


def _seeded(target: Target, asked: Bodies) -> float:
    """Share of sampled texts that are equal alone and in company."""
    seeded = [
        {**body, "max_tokens": _TOKENS, "temperature": 0.8, "seed": n}
        for n, body in enumerate(asked[: len(asked) // 2])
    ]
    one_by_one = [chats.text_of(target.client.call(target.name, body)) for body in seeded]
    return _same(target.stream(seeded), one_by_one)


def _same(found: Sequence[str], expected: Sequence[str]) -> float:
    """Share of equal texts; expected: may have further ones."""
    return sum(one == other for one, other in zip(found, expected, strict=False)) / len(found)


def _api(call: Callable[..., Any]) -> Callable[[Target, Bodies], list[str]]:
    return lambda target, bodies: chat_apis.run(
        call, target.platform.url, target.name, bodies, target.places
    )


_APIS: dict[str, Callable[[Target, Bodies], list[str]]] = {
    "infer": _api(chat_apis.infer),
    "infer_streams": _api(chat_apis.infer_stream),
    "chat_completions": _api(chat_apis.chat_completion),
    "messages": _api(chat_apis.message),
    "message_streams": _api(chat_apis.message_stream),
    "openai_batch": lambda target, bodies: chat_apis.openai_batch(
        target.platform.url, target.name, bodies
    ),
    "message_batch": lambda target, bodies: chat_apis.message_batch(
        target.platform.url, target.name, bodies
    ),
}
