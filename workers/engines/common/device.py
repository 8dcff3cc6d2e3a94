"""Devices: placement of tensors, and transfers of a launch to the device and back.

On CUDA each thread that launches has its own streams and pinned host buffers: with two launches in
flight, copies and Python of one overlap the kernels of the other. Launches with calls have streams
of a higher priority, so that their kernels go before those of items that wait on the device. On the
CPU the arrays themselves are the tensors.
"""

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from workers.engines import preemption

_URGENT = -1  # priority of a stream of calls
AUTO = "auto"
DTYPES = (AUTO, "float32", "float16", "bfloat16")
"""Types of numbers that a model may declare."""

Send: TypeAlias = Callable[[NDArray[Any]], Tensor]
"""Copies an array to a tensor on the device."""


class Device:
    """CPU, or any torch device without streams; makes no copies on the CPU."""

    def __init__(self, place: torch.device) -> None:
        self.place = place

    def run(self, forward: Callable[[Send], Tensor]) -> NDArray[np.float32]:
        """Returns the output of `forward`, on the host. Calls it on this thread with a function
        that sends arrays to the device; any number of threads may run at once."""
        return self.run_all(lambda send: [forward(send)])[0]

    def run_all(self, forward: Callable[[Send], Sequence[Tensor]]) -> list[NDArray[Any]]:
        """Runs a forward pass with several outputs, each of its own type."""
        with torch.inference_mode():
            return [output.cpu().numpy() for output in forward(self._send)]

    def release(self) -> None:
        """Returns the memory of freed tensors."""
        # Freed weights lie between living blocks: glibc would keep a gigabyte of them.
        if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
            trim(0)

    def _send(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(array).to(self.place)


class Cpu(Device):
    """CPU whose launches take turns, those with calls first: as many run at a time as there are
    cores for their threads."""

    def __init__(self, place: torch.device) -> None:
        super().__init__(place)
        preemption.CPU.resize(max(1, (os.cpu_count() or 1) // torch.get_num_threads()))

    def run_all(self, forward: Callable[[Send], Sequence[Tensor]]) -> list[NDArray[Any]]:
        """Runs a forward pass with several outputs, each of its own type."""
        with preemption.CPU.held():
            return super().run_all(forward)


class Cuda(Device):
    """CUDA device with two streams a thread: for launches with calls, and for all others."""

    def __init__(self, place: torch.device) -> None:
        super().__init__(place)
        self._threads = threading.local()

    def run_all(self, forward: Callable[[Send], Sequence[Tensor]]) -> list[NDArray[Any]]:
        """Runs a forward pass with several outputs."""
        stream = self._stream()
        with torch.inference_mode(), torch.cuda.stream(stream.stream):
            stream.begin()
            return [stream.fetch(output) for output in forward(stream.send)]

    def release(self) -> None:
        """Returns the memory of freed tensors."""
        torch.cuda.empty_cache()

    def _stream(self) -> "CudaStream":
        streams: dict[bool, CudaStream] = self._threads.__dict__.setdefault("streams", {})
        urgent = preemption.current_priority() == preemption.Priority.CALLS
        if urgent not in streams:
            streams[urgent] = CudaStream(self.place, _URGENT if urgent else 0)
        return streams[urgent]


def choose(name: str | None, *, preemptible: bool = False) -> Device:
    """Returns the device of that name; for None CUDA where there is one, else the CPU.

    preemptible: forward passes have points at which they give way to others.
    """
    place = torch.device(name or ("cuda" if torch.cuda.is_available() else "cpu"))
    if place.type == "cuda":
        return Cuda(place)
    return Cpu(place) if preemptible and place.type == "cpu" else Device(place)


def dtype(name: str, place: torch.device) -> torch.dtype:
    """Returns the type of a model's numbers by its name; "auto" is bfloat16 on GPUs that compute
    it, which takes half the memory and a fraction of the time, and float32 elsewhere."""
    if name == AUTO:
        name = "bfloat16" if is_ampere(place) else "float32"
    found: torch.dtype = getattr(torch, name)
    return found


def is_ampere(place: torch.device) -> bool:
    """Returns True for NVIDIA's GPUs from Ampere on, which compute bfloat16 and FlashAttention."""
    return place.type == "cuda" and torch.cuda.get_device_capability(place) >= (8, 0)


def autocast(name: str, place: torch.device) -> AbstractContextManager[Any]:
    """Returns a context in which torch computes products and convolutions in 16 bit, as PyTorch's
    autocast does; "": in none."""
    return torch.autocast(place.type, getattr(torch, name)) if name else nullcontext()


def weights_mb(module: nn.Module) -> float:
    """Returns the size of a module's weights, MiB."""
    return sum(t.nbytes for t in (*module.parameters(), *module.buffers())) / 2**20


class CudaStream:
    """Stream of one thread, with buffers that every launch uses again. priority: the least goes
    first."""

    def __init__(self, place: torch.device, priority: int = 0) -> None:
        self._place = place
        self.stream = torch.cuda.Stream(place, priority)  # type: ignore[no-untyped-call]
        self.stream.wait_stream(torch.cuda.default_stream(place))  # there the weights were loaded
        # Blocking: a thread that waits for the device leaves its core to the tokenizer.
        self._done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
        self._inputs: list[Pinned] = []
        self._sent = 0
        self._output = Pinned()

    def begin(self) -> None:
        """Waits for the stream: copies of a launch that failed may still read the buffers."""
        self.stream.synchronize()
        self._sent = 0

    def send(self, array: NDArray[Any]) -> Tensor:
        """Copies an array to the device, asynchronously."""
        if self._sent == len(self._inputs):
            self._inputs.append(Pinned())
        values = torch.from_numpy(array)
        pinned = self._inputs[self._sent].like(values)
        self._sent += 1
        pinned.copy_(values)
        return pinned.to(self._place, non_blocking=True)

    def fetch(self, output: Tensor) -> NDArray[Any]:
        """Copies an output to the host and waits for it."""
        pinned = self._output.like(output)
        pinned.copy_(output, non_blocking=True)
        self._done.record(self.stream)
        self._done.synchronize()
        copied: NDArray[Any] = pinned.numpy().copy()  # the next launch overwrites it
        return copied


class Pinned:
    """Page-locked host memory, which grows to the largest tensor it has held."""

    def __init__(self) -> None:
        self._bytes = pinned_bytes(0)

    def like(self, values: Tensor) -> Tensor:
        """Returns a buffer of that shape and type, over the previous content."""
        if values.nbytes > self._bytes.nbytes:
            self._bytes = pinned_bytes(1 << (values.nbytes - 1).bit_length())
        return self._bytes[: values.nbytes].view(values.dtype).view(values.shape)


def pinned_bytes(count: int) -> Tensor:
    """Allocates page-locked memory."""
    return torch.empty(count, dtype=torch.uint8, pin_memory=True)
