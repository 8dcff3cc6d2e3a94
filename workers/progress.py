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

SIZE = 16
_INCARNATION, _DUE = struct.Struct("<q"), struct.Struct("<d")
_DUE_AT = _INCARNATION.size


class Progress:
    """The worker's side."""

    def __init__(self, memory: "mmap.mmap | bytearray | None" = None) -> None:
        self._memory = bytearray(SIZE) if memory is None else memory
        self._lock = threading.Lock()
        self._due_s: dict[object, float] = {}

    @classmethod
    def inherited(cls) -> "Progress":
        """That of the supervisor which started this process, if one did."""
        fd = os.environ.get(FD)
        return cls(mmap.mmap(int(fd), SIZE) if fd else None)

    def became(self, incarnation: int) -> None:
        _INCARNATION.pack_into(self._memory, 0, incarnation)

    @contextmanager
    def within(self, limit_s: float) -> Iterator[None]:
        """What runs inside ends within the limit, or hangs."""
        key = object()
        with self._lock:
            self._due_s[key] = clock.monotonic() + limit_s
            self._write()
        try:
            yield
        finally:
            with self._lock:
                del self._due_s[key]
                self._write()

    def _write(self) -> None:
        _DUE.pack_into(self._memory, _DUE_AT, min(self._due_s.values(), default=0.0))


class Watch:
    """The supervisor's side: a file of its own, without a name, for each worker it starts."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("millrace-progress", 0)
        os.ftruncate(self.fd, SIZE)
        self._memory = mmap.mmap(self.fd, SIZE)

    @property
    def incarnation(self) -> int:
        """0 until the worker has registered."""
        incarnation: int = _INCARNATION.unpack_from(self._memory, 0)[0]
        return incarnation

    def reset(self) -> None:
        """Before another worker writes there."""
        self._memory[:] = bytes(SIZE)

    def busy(self) -> bool:
        """Whether the engine is at work, or was when the worker ended."""
        return self._due_s() > 0.0

    def hangs(self) -> bool:
        return 0.0 < self._due_s() < clock.monotonic()

    def _due_s(self) -> float:
        due_s: float = _DUE.unpack_from(self._memory, _DUE_AT)[0]
        return due_s

    def close(self) -> None:
        self._memory.close()
        os.close(self.fd)
