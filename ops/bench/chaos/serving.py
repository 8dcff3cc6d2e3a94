"""Fleet of two apis, a keeper and two workers, which serve given models."""

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobs.calls.keys import Keys
from ops.bench.chaos.fleet import Fleet
from ops.bench.harness.platform import wait_until

_LOADED_WITHIN_S = 180.0


@contextmanager
def serving_fleet(models: str, keys: Sequence[str] = ()) -> Iterator[Fleet]:
    """Starts the fleet in a temporary folder, and stops it. models: text of a models file; keys:
    versions (name@version) that both workers must be ready for first."""
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        declared, home = Path(folder) / "models.toml", Path(folder) / "home"
        declared.write_text(models)
        home.mkdir()
        fleet = Fleet(home, declared, apis=2, keepers=1, workers=2)
        try:
            fleet.start()
            for key in keys:
                await_model(fleet, key)
            yield fleet
        finally:
            fleet.stop()


def await_model(fleet: Fleet, key: str) -> None:
    """Returns once all workers are ready for calls of a model. Raises BenchError."""

    def ready() -> bool:
        fleet.poll()
        return len(ready_workers(fleet, key)) == len(fleet.workers)

    wait_until(ready, f"all workers are ready for {key}", _LOADED_WITHIN_S)


def ready_workers(fleet: Fleet, key: str) -> set[str]:
    """Returns the workers that are ready for calls of a model (name@version), by their names in
    Redis."""
    redis: Any = fleet.redis
    seconds, micros = redis.time()
    now_ms = seconds * 1000 + micros / 1000
    return {name.decode() for name in redis.zrangebyscore(Keys(key)("ready"), now_ms, "+inf")}
