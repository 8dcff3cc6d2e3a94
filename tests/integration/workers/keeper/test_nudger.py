"""How many nudges are sent at once."""

from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from workers.keeper.nudger import Nudger

WORKERS = 4
ALL = 8 * WORKERS


def test_a_burst_brings_everybody_once_though_a_small_job_came_just_before(
    settings: Settings,
) -> None:
    nudger = Nudger(settings, ModelsFile(None), db.connect(settings.database_url, pool_size=1))
    assert nudger._cap("default", 1, WORKERS) >= 1
    assert nudger._cap("default", 1000, WORKERS) == ALL
    assert nudger._cap("default", 1000, WORKERS) < ALL  # they were told
    assert nudger._cap("other", 1000, WORKERS) == ALL
