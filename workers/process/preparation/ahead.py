"""How far preparation is ahead of the devices: a model's items aren't claimed to be prepared while
so many prepared ones wait that their bytes are MILLRACE_PREPARE_AHEAD_MB, about."""

import logging
from collections.abc import Callable, Mapping

from sqlalchemy import Engine as Database
from sqlalchemy.exc import SQLAlchemyError

from jobs.models.model import PreparationModel
from jobs.store import prepared
from workers.device.host import ClaimHost

EVERY_S = 1.0
"""Time between two looks."""

_FEWEST, _MOST = 256, 5000  # items ahead, whatever their size
_BYTES = 65_536.0  # of an item, until any was prepared
_log = logging.getLogger(__name__)


class Ahead:
    """Suspends claims of models whose devices have enough to do; for one worker.

    hosts: those that serve now, by name@version; item_bytes: of a prepared input, by the model that
    it is for; resumed: called where claims may go on.
    """

    def __init__(
        self,
        database: Database,
        hosts: Mapping[str, ClaimHost],
        item_bytes: Mapping[str, float],
        ahead_mb: int,
        resumed: Callable[[], None],
    ) -> None:
        self._database, self._hosts = database, hosts
        self._item_bytes, self._ahead_bytes = item_bytes, ahead_mb << 20
        self._resumed = resumed

    def run_once(self) -> None:
        """Compares what waits for the devices with what may wait."""
        try:
            self._look()
        except SQLAlchemyError as error:
            _log.warning("can't count what waits for the devices: %s", error)

    def _look(self) -> None:
        resumed = False
        for host in list(self._hosts.values()):
            if isinstance(host.model, PreparationModel):
                base = host.model.base
                most = self.most_items(base.key)
                with self._database.begin() as tx:
                    full = prepared.count_ahead(tx, base, most) >= most
                resumed |= host.capacity.suspended and not full
                host.capacity.suspended = full
        if resumed:
            self._resumed()

    def most_items(self, key: str) -> int:
        """Returns the number of items of a model that may wait."""
        fitting = self._ahead_bytes / max(1.0, self._item_bytes.get(key, _BYTES))
        return int(min(max(_FEWEST, fitting), _MOST))
