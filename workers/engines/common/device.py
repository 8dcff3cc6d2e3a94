"""Where tensors live, and how a launch gets there and back.

Engines know a `Device` only. On CUDA each thread that launches has a stream and pinned host
buffers of its own: with two launches in flight, copies and Python of one overlap the kernels of
the other. On the CPU the arrays themselves are the tensors.
"""

import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Send: TypeAlias = Callable[[NDArray[Any]], Tensor]
"""An array to a tensor on the device."""


class Device(Protocol):
    """place: what torch calls it."""

    place: torch.device

    def run(self, forward: Callable[[Send], Tensor]) -> NDArray[np.float32]:
        """What `forward` returns, on the host. It is called on this thread with what sends arrays
        to the device; any number of threads may be at it at once."""
        ...

    def run_all(self, forward: Callable[[Send], Sequence[Tensor]]) -> list[NDArray[Any]]:
        """The same for several tensors, each of its own type."""
        ...

    def release(self) -> None:
        """Gives back what freed tensors leave behind."""
        ...


def choose(name: str | None) -> Device:
    """name: a torch device; None: CUDA where there is one, else the CPU."""
    place = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    return Cuda(place) if place.type == "cuda" else Cpu(place)


class Cpu:
    """No copies at all. Also for any device of torch that has no streams."""

    def __init__(self, place: torch.device) -> None:
        self.place = place

    def run(self, forward: Callable[[Send], Tensor]) -> NDArray[np.float32]:
        return self.run_all(lambda send: [forward(send)])[0]

    def run_all(self, forward: Callable[[Send], Sequence[Tensor]]) -> list[NDArray[Any]]:
        with torch.inference_mode():
            return [output.cpu().numpy() for output in forward(self._send)]

    def release(self) -> None:
        # Weights of some MiB lie between what lives on: glibc would keep a gigabyte of theirs.
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)

    def _send(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.place)


class Cuda:
    """One CUDA device, one stream a thread."""

    def __init__(self, place: torch.device) -> None:
        self.place = place
        self._threads = threading.local()

    def run(self, forward: Callable[[Send], Tensor]) -> NDArray[np.float32]:
        return self.run_all(lambda send: [forward(send)])[0]

    def run_all(self, forward: Callable[[Send], Sequence[Tensor]]) -> list[NDArray[Any]]:
        pipe = self._pipe()
        with torch.inference_mode(), torch.cuda.stream(pipe.stream):
            pipe.begin()
            return [pipe.fetch(output) for output in forward(pipe.send)]

    def release(self) -> None:
        torch.cuda.empty_cache()

    def _pipe(self) -> "Pipe":
        pipe: Pipe | None = getattr(self._threads, "pipe", None)
        if pipe is None:
            pipe = self._threads.pipe = Pipe(self.place)
        return pipe


class Pipe:
    """One thread's way to a CUDA device and back. Its buffers are used again at each launch."""

    def __init__(self, place: torch.device) -> None:
        self._place = place
        self.stream = torch.cuda.Stream(place)  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.default_stream(place))  # there the weights were loaded
        # Blocking: a thread that waits for the device leaves its core to the tokenizer.
        self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._inputs: list[Pinned] = []
        self._sent = 0
        self._output = Pinned()

    def begin(self) -> None:
        """Idle already, unless the launch before failed: its copies may still read the buffers."""
        self.stream.synchronize()
        self._sent = 0

    def send(self, array: NDArray[Any]) -> Tensor:
        if self._sent == len(self._inputs):
            self._inputs.append(Pinned())
        values = torch.from_numpy(array)
        pinned = self._inputs[self._sent].like(values)
        self._sent += 1
        pinned.copy_(values)
        return pinned.to(self._place, non_blocking=True)

    def fetch(self, output: Tensor) -> NDArray[Any]:
        pinned = self._output.like(output)
        pinned.copy_(output, non_blocking=True)
        self._done.record(self.stream)
        self._done.synchronize()
        copied: NDArray[Any] = pinned.numpy().copy()  # the next launch overwrites it
        return copied


class Pinned:
    """Page-locked host memory, from which the device copies by itself. It grows to the largest
    tensor it has held."""

    def __init__(self) -> None:
        self._bytes = pinned_bytes(0)

    def like(self, values: Tensor) -> Tensor:
        """Room of that shape and type; what was there before is lost."""
        if values.nbytes > self._bytes.nbytes:
            self._bytes = pinned_bytes(1 << (values.nbytes - 1).bit_length())
        return self._bytes[: values.nbytes].view(values.dtype).view(values.shape)


def pinned_bytes(count: int) -> Tensor:
    return torch.empty(count, dtype=torch.uint8, pin_memory=True)
