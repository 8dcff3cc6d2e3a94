"""Watchdog of launches: a worker writes to memory that it shares with its supervisor by when the
engine must have returned. No thread of the worker is needed, so a launch may hold the GIL."""

import mmap
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import inf, isfinite

from jobs import clock
from workers.device.monitoring.load_history import LoadHistory

FD_VARIABLE = "MILLRACE_PROGRESS_FD"
"""Environment variable with the descriptor of the inherited file."""

FORCED_EXIT_CODE = 75
"""Exit code of a worker that had to stop without waiting for a launch any longer."""

SICK_EXIT_CODE = 76
"""Exit code of a worker whose device failed before anything worked on it."""

DEVICE_CRASH_EXIT_CODE = 77
"""Exit code of a worker whose device failed in a launch, which may be the cause, after others had
succeeded."""

FIRST_LAUNCH_EXIT_CODE = 78
"""Exit code of a worker whose device failed in a launch, which may be the cause, before any
succeeded."""

RECLAIMED_EXIT_CODE = 79
"""Exit code of a spot worker whose machine is about to be reclaimed."""

#: incarnation, deadline (monotonic s; 0: none), items and calls that the engine has now
_LAYOUT = struct.Struct("<qdqq")
#: deadline of the load (monotonic s; 0: none), length of the model's name@version, and it
_LOAD = struct.Struct("<dH246s")
#: length of the load history, and it
_HISTORY = struct.Struct("<H7934s")
_LOAD_AT, _HISTORY_AT = _LAYOUT.size, _LAYOUT.size + _LOAD.size
_MOST_HISTORY = _HISTORY.size - 2
SIZE = _HISTORY_AT + _HISTORY.size

_NONE = LoadHistory()


class LaunchDeadline:
    """Worker's side: the deadline of what the engine does now."""

    def __init__(self, memory: "mmap.mmap | bytearray | None" = None) -> None:
        self._memory = bytearray(SIZE) if memory is None else memory
        self._lock = threading.Lock()
        self._incarnation = 0
        self._holds = False
        self._inside: dict[object, tuple[float, int, int]] = {}

    @classmethod
    def inherited(cls) -> "LaunchDeadline":
        """Uses the memory of the supervisor that started this process, if one did."""
        fd = os.environ.get(FD_VARIABLE)
        return cls(mmap.mmap(int(fd), SIZE) if fd else None)

    def set_incarnation(self, incarnation: int) -> None:
        """Tells the supervisor which worker this process is."""
        self._incarnation = incarnation
        self._write()

    @contextmanager
    def within(
        self, limit_s: float, *, items: int = 0, calls: int = 0
    ) -> Iterator["LaunchStopwatch"]:
        """Sets a limit for what runs inside; it hangs if it takes longer. items, calls: in the
        engine."""
        due_s = clock.monotonic() + limit_s
        stopwatch = LaunchStopwatch(self, due_s, items, calls)
        with self._lock:
            self._inside[stopwatch] = due_s, items, calls
            self._write()
        try:
            yield stopwatch
        finally:
            with self._lock:
                del self._inside[stopwatch]
                self._write()

    @contextmanager
    def loading(self, model: str, limit_s: float) -> Iterator[Callable[[], None]]:
        """Sets a limit for the load of a model (name@version), one at a time; yields what begins it
        anew. The supervisor takes a death inside for the load's."""
        name = model.encode()[: _LOAD.size - 10]

        def begin() -> None:
            _LOAD.pack_into(self._memory, _LOAD_AT, clock.monotonic() + limit_s, len(name), name)

        begin()
        try:
            yield begin
        finally:
            _LOAD.pack_into(self._memory, _LOAD_AT, 0.0, 0, b"")

    def load_history(self) -> LoadHistory:
        """Returns what is known of the loads of earlier incarnations of this worker."""
        return _read_history(self._memory)

    def hold(self, models: Iterable[str]) -> None:
        """Tells what the next incarnation of this worker is to load first, by name@version."""
        with self._lock:
            self._holds = True
            _write_history(self._memory, replace(self.load_history(), held=tuple(models)))

    def forget_held(self) -> None:
        """Forgets what the last incarnation held: this one has loaded it."""
        with self._lock:
            if not self._holds:
                _write_history(self._memory, replace(self.load_history(), held=()))

    def set_due(self, key: object, due_s: float, items: int, calls: int) -> None:
        """Sets when something in the engine is due, monotonic s; inf: it waits for the device."""
        with self._lock:
            self._inside[key] = due_s, items, calls
            self._write()

    def _write(self) -> None:
        inside = self._inside.values()
        due_s = min((due_s for due_s, _, _ in inside if isfinite(due_s)), default=0.0)
        items, calls = sum(i for _, i, _ in inside), sum(c for _, _, c in inside)
        _LAYOUT.pack_into(self._memory, 0, self._incarnation, due_s, items, calls)


class LaunchStopwatch:
    """Time that is left to one launch; it stands still while the launch waits for the device."""

    def __init__(self, deadline: LaunchDeadline, due_s: float, items: int, calls: int) -> None:
        self._deadline, self._entries = deadline, (items, calls)
        self._left_s, self._due_s = 0.0, due_s

    def run(self) -> None:
        """Goes on."""
        self._due_s = clock.monotonic() + self._left_s
        self._deadline.set_due(self, self._due_s, *self._entries)

    def wait(self) -> None:
        """Stands still until `run`."""
        self._left_s = self._due_s - clock.monotonic()
        self._deadline.set_due(self, inf, *self._entries)


class Watch:
    """Supervisor's side: a nameless file for each worker process, until nobody refers to it."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("millrace-progress", 0)
        self._close_file = weakref.finalize(self, os.close, self.fd)
        os.ftruncate(self.fd, SIZE)
        self._memory = mmap.mmap(self.fd, SIZE)

    @property
    def incarnation(self) -> int:
        """Incarnation of the worker; 0 until it has registered."""
        return self._read()[0]

    def reset(self, history: LoadHistory = _NONE) -> None:
        """Clears the memory before another worker starts, and tells it the history of loads, with
        what the last one held."""
        held = _read_history(self._memory).held
        self._memory[:] = bytes(SIZE)
        _write_history(self._memory, replace(history, held=held))

    def busy(self) -> bool:
        """Returns True if the engine has items or calls, or had when the worker ended."""
        _, _, items, calls = self._read()
        return items + calls > 0

    def only_calls(self) -> bool:
        """Returns True if the engine has calls and no items, or had when the worker ended."""
        _, _, items, calls = self._read()
        return calls > 0 and items == 0

    def hangs(self) -> bool:
        """Returns True once the engine has missed its deadline."""
        return _left_s(self._read()[1]) < 0

    def load_hangs(self) -> bool:
        """Returns True once a load has missed its deadline."""
        return _left_s(self._load()[0]) < 0

    def left_s(self) -> float:
        """Returns the time until the next of both deadlines; inf without one."""
        return min(_left_s(self._read()[1]), _left_s(self._load()[0]))

    @property
    def loading(self) -> str:
        """Model (name@version) that is loaded, or was when the worker ended; empty: none."""
        _, length, name = self._load()
        return name[:length].decode(errors="replace")

    def _load(self) -> tuple[float, int, bytes]:
        return _LOAD.unpack_from(self._memory, _LOAD_AT)

    def _read(self) -> tuple[int, float, int, int]:
        return _LAYOUT.unpack_from(self._memory)

    def close(self) -> None:
        """Frees memory and file."""
        self._memory.close()
        self._close_file()


def _read_history(memory: "mmap.mmap | bytearray") -> LoadHistory:
    length, packed = _HISTORY.unpack_from(memory, _HISTORY_AT)
    return LoadHistory.unpack(packed[:length])


def _write_history(memory: "mmap.mmap | bytearray", history: LoadHistory) -> None:
    packed = history.pack(_MOST_HISTORY)
    _HISTORY.pack_into(memory, _HISTORY_AT, len(packed), packed)


def _left_s(due_s: float) -> float:
    """Returns the time until a deadline (0: none)."""
    return due_s - clock.monotonic() if due_s else inf
