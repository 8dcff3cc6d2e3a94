"""Checkpoints of items that are being generated, while they run: one write a host and interval."""

import logging
import threading
from collections.abc import Mapping

from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs.store.queue import checkpoints
from workers.device.host import Host
from workers.generation.host import GenerationHost
from workers.generation.items.checkpoints import Unsaved

_log = logging.getLogger(__name__)

CHECKPOINT_S = 1.0
"""Time between two checkpoints, s. A worker that is killed loses half of it in the mean, and what
the write takes: of workers that are killed every five to ten seconds 5 to 15 % of their tokens."""


class Checkpointer:
    """Writes checkpoints for the hosts of one worker that generate.

    hosts: those that serve now, by name@version."""

    def __init__(self, database: Database, hosts: Mapping[str, Host]) -> None:
        self._database, self._hosts = database, hosts

    def run(self, until: threading.Event) -> None:
        """Writes until the worker stops."""
        while not until.wait(CHECKPOINT_S):
            self.write()

    def write(self) -> None:
        """Writes what all items emitted since the last time; what can't be written now comes with
        the next."""
        for host in list(self._hosts.values()):
            if isinstance(host, GenerationHost):
                try:
                    host.checkpoint(self._store)
                except SQLAlchemyError as error:
                    _log.warning("can't write checkpoints of %s: %s", host.model.key, error)

    def _store(self, unsaved: Unsaved) -> None:
        with self._database.begin() as tx:
            checkpoints.write(tx, unsaved.leases, unsaved.pieces)
