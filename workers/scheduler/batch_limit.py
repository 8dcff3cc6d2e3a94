"""Most rows of a launch: halved where memory runs out, grown again while it does not."""

from dataclasses import dataclass

_PATIENCE = 16  # full launches before the first growth
_LONGEST_PATIENCE = 4096


@dataclass(slots=True)
class BatchLimit:
    """Row limit of one model on one device.

    It grows by an eighth after a number of full launches in a row without an error; that number
    doubles at each time that memory ran out, so that a device whose limit lies below the
    configured one is hardly tried beyond it.
    """

    configured: int  #: rows of `max_batch` in the models file
    rows: int = 0  #: most rows now
    _patience: int = _PATIENCE
    _full: int = 0

    def __post_init__(self) -> None:
        self.rows = self.configured

    def ran_out_of_memory(self, rows: int) -> None:
        """Halves the limit, after a launch of `rows` didn't fit."""
        self.rows = max(1, min(self.rows, rows // 2))
        self._patience = min(_LONGEST_PATIENCE, 2 * self._patience)
        self._full = 0

    def launched(self, rows: int, *, clean: bool) -> None:
        """Counts a launch, and grows the limit where enough full ones in a row had no error."""
        if self.rows == self.configured or rows < self.rows:
            return
        self._full = self._full + 1 if clean else 0
        if self._full >= self._patience:
            self.rows = min(self.configured, self.rows + max(1, self.rows // 8))
            self._full = 0
