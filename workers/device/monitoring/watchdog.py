"""What a worker tells its supervisor, in memory that both see: who it is, and until when the engine
must have returned. It needs no thread of the worker, so it holds while a launch holds the GIL."""

import mmap
import os
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobs import clock

FD = "MILLRACE_PROGRESS_FD"
"""The environment variable that names the inherited file."""

LEFT_ANYWAY = 75
"""Exit code of a worker that was told to stop and could not wait for a launch any longer."""

_LAYOUT = struct.Struct("<qdqq")  # incarnation, due, items and calls that the engine has now
SIZE = _LAYOUT.size


class LaunchDeadline:
    """The worker's side."""

    def __init__(self, memory: "mmap.mmap | bytearray | None" = None) -> None:
        self._memory = bytearray(SIZE) if memory is None else memory
        self._lock = threading.Lock()
        self._incarnation = 0
        self._inside: dict[object, tuple[float, int, int]] = {}

    @classmethod
    def inherited(cls) -> "LaunchDeadline":
        """That of the supervisor which started this process, if one did."""
        fd = os.environ.get(FD)
        return cls(mmap.mmap(int(fd), SIZE) if fd else None)

    def became(self, incarnation: int) -> None:
        self._incarnation = incarnation
        self._write()

    @contextmanager
    def within(self, limit_s: float, *, items: int = 0, calls: int = 0) -> Iterator[None]:
        """What runs inside ends within the limit, or hangs; so many items and calls are in it:
        none while a model is loaded."""
        key = object()
        with self._lock:
            self._inside[key] = clock.monotonic() + limit_s, items, calls
            self._write()
        try:
            yield
        finally:
            with self._lock:
                del self._inside[key]
                self._write()

    def _write(self) -> None:
        inside = self._inside.values()
        due_s = min((due_s for due_s, _, _ in inside), default=0.0)
        items, calls = sum(i for _, i, _ in inside), sum(c for _, _, c in inside)
        _LAYOUT.pack_into(self._memory, 0, self._incarnation, due_s, items, calls)


class Watch:
    """The supervisor's side: a file of its own, without a name, for each worker it starts."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("millrace-progress", 0)
        os.ftruncate(self.fd, SIZE)
        self._memory = mmap.mmap(self.fd, SIZE)

    @property
    def incarnation(self) -> int:
        """0 until the worker has registered."""
        return self._read()[0]

    def reset(self) -> None:
        """Before another worker writes there."""
        self._memory[:] = bytes(SIZE)

    def busy(self) -> bool:
        """Whether the engine has items or calls, or had when the worker ended."""
        _, _, items, calls = self._read()
        return items + calls > 0

    def only_calls(self) -> bool:
        """Whether what the engine has, or had when the worker ended, are calls and no items."""
        _, _, items, calls = self._read()
        return calls > 0 and items == 0

    def hangs(self) -> bool:
        return 0.0 < self._read()[1] < clock.monotonic()

    def _read(self) -> tuple[int, float, int, int]:
        return _LAYOUT.unpack_from(self._memory)

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
