"""Service that writes the figures of each minute to the database."""

from redis import Redis
from sqlalchemy import Engine as Database

from jobs.store.monitoring import history
from jobs.telemetry.reports import reader
from jobs.telemetry.reports.figures import figures_by_subject
from workers.service import Service

_EVERY_S = 15.0  # several times a minute: none is left out


class HistoryWriter(Service):
    """Writes what all processes reported, once a minute."""

    def __init__(self, redis: "Redis", database: Database) -> None:
        super().__init__("figures", _EVERY_S)
        self._redis, self._database = redis, database

    def run_once(self) -> int:
        """Writes this minute, unless that has been done or nobody reports."""
        with self._database.begin() as tx:
            if history.is_written(tx):
                return 0
        if figures := figures_by_subject(reader.read(self._redis)):
            with self._database.begin() as tx:
                history.add_minute(tx, figures)
        return 0
