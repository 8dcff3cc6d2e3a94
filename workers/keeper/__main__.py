"""`python -m workers.keeper`: one keeper process, configured by the environment."""

from jobs import settings
from jobs.telemetry import logs
from workers.keeper.keeper import run_keeper

if __name__ == "__main__":
    loaded = settings.load()
    logs.configure("keeper", loaded.log_format)
    run_keeper(loaded)
