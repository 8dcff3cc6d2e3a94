"""Logs of calls in this process, for `MemoryLanes`."""

from collections.abc import Sequence

from jobs.calls.messages import Delta, Reply
from jobs.calls.streams.log import MOST_DEATHS, CallLog, Progress


class MemoryLogs:
    """Logs by the id of their call."""

    def __init__(self) -> None:
        self._deltas: dict[str, list[Delta]] = {}
        self._notes: dict[str, bytes] = {}
        #: length of the log when its worker died, and how often one did
        self._died: dict[str, tuple[int, int]] = {}
        self.ends: dict[str, Reply] = {}  #: of streams

    def append(self, progress: Progress) -> bool:
        """Appends a delta; returns False for one that was appended before."""
        delta = progress.delta
        log = self._deltas.setdefault(delta.id, [])
        if len(log) == delta.number:
            log.append(delta)
            self._notes[delta.id] = progress.notes or self._notes.get(delta.id, b"")
        elif len(log) > delta.number:
            return False
        return True

    def read(self, ids: Sequence[str]) -> list[CallLog]:
        """Returns the logs of calls, in order."""
        return [CallLog(tuple(self._deltas.get(id, ())), self._notes.get(id, b"")) for id in ids]

    def generated(self, id: str) -> bool:
        """Returns True if a log has grown since its worker died the last time, of a call whose
        workers did not die too often; one dies again."""
        length, (before, deaths) = len(self._deltas.get(id, ())), self._died.get(id, (0, 0))
        if length <= before or deaths >= MOST_DEATHS:
            return False
        self._died[id] = length, deaths + 1
        return True

    def end(self, id: str, reply: Reply | None) -> None:
        """Adds the reply of a stream; None: forgets a log."""
        if reply:
            self.ends[id] = reply
        else:
            self._deltas.pop(id, None)
        self._notes.pop(id, None)
        self._died.pop(id, None)
