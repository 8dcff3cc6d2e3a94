"""The way to a device and back. CUDA's own calls are played by fakes that note their order: there
is no card where the tests run."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.support.wait import PATIENCE_S
from workers.engines.common import device
from workers.engines.common.device import Cuda, Device, Pinned, Send
from workers.engines.encoder import RandomEncoder
from workers.engines.preemption import Priority, Turn

pytestmark = pytest.mark.heavy

PLACE = torch.device("cpu")
events: list[tuple[str, int]] = []


class Stream:
    """Notes what is done with it, by its number."""

    made = 0

    def __init__(self, place: torch.device, priority: int) -> None:
        Stream.made += 1
        self.number, self.priority = Stream.made, priority

    def wait_stream(self, other: str) -> None:
        assert other == "default"
        events.append(("wait for weights", self.number))

    def synchronize(self) -> None:
        events.append(("idle", self.number))


class Event:
    def __init__(self, blocking: bool) -> None:
        assert blocking

    def record(self, stream: Stream) -> None:
        self.number = stream.number
        events.append(("record", self.number))

    def synchronize(self) -> None:
        events.append(("done", self.number))


@contextmanager
def using(stream: Stream) -> Iterator[None]:
    events.append(("enter", stream.number))
    yield
    events.append(("leave", stream.number))


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    events.clear()
    Stream.made = 0
    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "stream", using)
    monkeypatch.setattr(torch.cuda, "default_stream", lambda place: "default")
    monkeypatch.setattr(device, "pinned_bytes", lambda n: torch.empty(n, dtype=torch.uint8))
    return Cuda(PLACE)


@pytest.fixture(params=["cpu", "cuda"])
def any_device(request: pytest.FixtureRequest) -> Device:
    found: Device = Device(PLACE) if request.param == "cpu" else request.getfixturevalue("cuda")
    return found


def twice(values: Any) -> Any:
    def forward(send: Send) -> Tensor:
        assert torch.is_inference_mode_enabled()
        sent = [send(np.array(part, dtype=np.float32)) for part in values]
        return torch.stack(sent) * 2

    return forward


def test_an_output_outlives_the_launches_after_it_and_one_that_fails_hurts_none(
    any_device: Device,
) -> None:
    first = any_device.run(twice([[1, 2], [3, 4]]))
    assert any_device.run(twice([[5, 6], [7, 8]])).tolist() == [[10, 12], [14, 16]]
    assert first.tolist() == [[2, 4], [6, 8]]

    def fails(send: Send) -> Tensor:
        send(np.zeros(3))
        raise MemoryError

    with pytest.raises(MemoryError):
        any_device.run(fails)
    assert any_device.run(twice([[1], [2]])).tolist() == [[2], [4]]


def test_a_launch_waits_for_its_copies_before_it_reads_them(cuda: Cuda) -> None:
    cuda.run(twice([[1]]))
    steps = ["wait for weights", "enter", "idle", "record", "done", "leave"]
    assert events == [(step, 1) for step in steps]


def test_a_thread_keeps_its_stream_and_shares_it_with_nobody(cuda: Cuda) -> None:
    at_once = Barrier(2)

    def launches(value: int) -> list[Any]:
        at_once.wait(PATIENCE_S)  # or one thread could do the work of both
        return [cuda.run(twice([[value + n]])).tolist() for n in range(3)]

    with ThreadPoolExecutor(2) as pool:
        doubled = list(pool.map(launches, [10, 20]))
    assert doubled == [[[[20]], [[22]], [[24]]], [[[40]], [[42]], [[44]]]]
    assert Stream.made == 2
    assert sorted(number for step, number in events if step == "enter") == [1, 1, 1, 2, 2, 2]


def test_launches_with_calls_have_a_stream_that_goes_first(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []

    @contextmanager
    def noting(stream: Stream) -> Iterator[None]:
        used.append(stream.priority)
        yield

    monkeypatch.setattr(torch.cuda, "stream", noting)
    for priority in (Priority.CALLS, Priority.BULK, Priority.ITEMS, Priority.CALLS):
        with Turn(priority):
            cuda.run(twice([[1]]))
    assert used == [-1, 0, 0, -1]
    assert Stream.made == 2


@pytest.mark.parametrize("layout", ["packed", "padded"])
def test_an_engine_has_the_same_vectors_on_either_device(
    cuda: Cuda, monkeypatch: pytest.MonkeyPatch, layout: str
) -> None:
    """Launches of two threads, larger and smaller in turn, so that buffers grow and are shared."""
    shape = {"hidden": 32, "layers": 2, "heads": 4, "intermediate": 64, "threads": 1}
    engines = []
    for chosen in (Device(PLACE), cuda):
        monkeypatch.setattr(device, "choose", lambda _, chosen=chosen, **_options: chosen)
        engines.append(RandomEncoder(layout=layout, **shape))
    launches = [
        [np.arange(1, 2 + (7 * n + row) % (30 * (n % 3 + 1)), dtype=np.int32) for row in range(n)]
        for n in (3, 9, 1, 17, 4, 12)
    ]
    expected = [engines[0].run(launch, {}) for launch in launches]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda launch: engines[1].run(launch, {}), launches * 5))
    for vectors, wanted in zip(found, expected * 5, strict=True):
        np.testing.assert_allclose(vectors, wanted, rtol=0, atol=1e-5)


def test_pinned_memory_is_used_again_until_something_larger_comes(cuda: Cuda) -> None:
    pinned = Pinned()
    large = pinned.like(torch.zeros(5, 7, dtype=torch.int32))
    assert (large.shape, large.dtype) == ((5, 7), torch.int32)
    small = pinned.like(torch.zeros(3, dtype=torch.float32))
    assert small.data_ptr() == large.data_ptr()
    assert pinned.like(torch.zeros(65, dtype=torch.float32)).shape == (65,)
    assert pinned.like(torch.zeros(0, 4)).shape == (0, 4)


def test_without_a_name_the_device_is_cuda_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert type(device.choose(None)) is Device
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert isinstance(device.choose(None), Cuda)
    assert type(device.choose("cpu")) is Device
