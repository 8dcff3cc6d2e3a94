"""Shape of the keeper's services."""

import threading


class Service:
    """Periodic work of the keeper.

    `name` is for the log, metrics and its thread; `interval_s` the pause after a run with nothing
    left to do, which runs may change; `wake` ends the pause early; `has_failed` keeps work that is
    due from ending it.
    """

    has_failed = False

    def __init__(self, name: str, interval_s: float) -> None:
        self.name, self.interval_s = name, interval_s
        self.wake = threading.Event()

    def run_once(self) -> int:
        """Does some of what is due; returns 0 once nothing is left. May raise what database, Redis,
        broker and blob store raise while they are away."""
        raise NotImplementedError
