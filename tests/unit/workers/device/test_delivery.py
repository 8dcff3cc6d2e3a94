"""Outcomes of many items: another thread delivers them, and its errors end the process."""

import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any, cast
from uuid import UUID

import pytest

from jobs import clock
from jobs.models.builtin_models import SAMPLES
from jobs.models.inputs.generation import TokenUsage
from jobs.models.model import Model
from jobs.store.queue.claim import Lease
from workers.device.call_puller import CallPuller
from workers.device.delivery import Delivery
from workers.device.monitoring.rollout_records import RecordStreams
from workers.items.in_flight import ClaimedBatch, InFlightSlice
from workers.scheduler.entries import Entry, Launch

ECHO = SAMPLES.resolve("echo")
NO_CALLS = cast("CallPuller", None)


@pytest.fixture
def delivery() -> Iterator[Delivery]:
    delivery = Delivery(ECHO, NO_CALLS, lambda model, launch: 1, RecordStreams())
    yield delivery
    delivery.close()


def launch_of(items: int, owner: Any) -> Launch:
    now_s = clock.monotonic()
    entries = [Entry(owner, seq, "{}/0", 0, 1, "x", now_s) for seq in range(items)]
    return Launch({}, "full", [], entries, now_s, started_s=now_s)


def claimed(items: int) -> InFlightSlice:
    lease = Lease(UUID(int=1), 0, items, 1, "default", ECHO.key, "{}")
    [in_flight] = ClaimedBatch([lease]).slices
    in_flight.expect(items)
    return in_flight


@pytest.mark.parametrize("items", [3, 1000])
def test_every_item_ends_with_its_output(delivery: Delivery, items: int) -> None:
    in_flight = claimed(items)
    delivery.deliver(launch_of(items, in_flight), list(range(items)), None)
    assert in_flight.batch.wait(10.0) == [in_flight]
    found = [(outcome.seq, outcome.output, outcome.launch_id) for outcome in in_flight.outcomes]
    assert found == [(seq, seq, 1) for seq in range(items)]


def test_the_tokens_that_a_chat_counts_are_those_of_its_outcome() -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    details = {"prompt_tokens_details": {"cached_tokens": 9}}
    given: list[tuple[Any, TokenUsage | None]] = [
        (usage, TokenUsage(5, 0, 2)), (usage | details, TokenUsage(5, 5, 2)),
        ({"completion_tokens": 2}, TokenUsage(0, 0, 2)), ({"total_tokens": 7}, None), (None, None),
        ({"prompt_tokens": "5", "completion_tokens": True}, None), ([], None),
        ({"prompt_tokens": -1, "completion_tokens": 2**40}, TokenUsage(0, 0, 2**31 - 1)),
    ]  # fmt: skip
    outputs: list[Any] = ["text", {}, ValueError("no"), *({"usage": one} for one, _ in given)]
    model = Model("talk", "1", "echo", task="chat")
    with closing(Delivery(model, NO_CALLS, lambda model, launch: 1, RecordStreams())) as chats:
        in_flight = claimed(len(outputs))
        chats.deliver(launch_of(len(outputs), in_flight), outputs, None)
    found = [outcome.tokens for outcome in in_flight.outcomes]
    assert found == [None, None, None, *(expected for _, expected in given)]


def test_nothing_is_left_undelivered_when_it_is_closed(delivery: Delivery) -> None:
    in_flight = claimed(5000)
    delivery.deliver(launch_of(5000, in_flight), ["y"] * 5000, None)
    delivery.close()
    assert in_flight.finished


def test_an_error_on_the_other_thread_is_seen_by_its_process(
    delivery: Delivery, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[threading.ExceptHookArgs]()
    monkeypatch.setattr(threading, "excepthook", seen.append)
    delivery.deliver(launch_of(100, "no slice"), ["y"] * 100, None)
    delivery.close()
    [args] = seen
    assert args.exc_type is AttributeError
    assert args.thread is not None
