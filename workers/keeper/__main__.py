"""`python -m workers.keeper`: one keeper process, configured by the environment."""

from jobs import settings
from jobs.telemetry import logs
from workers.keeper.keeper import run_keeper

if __name__ == "__main__":
    found = settings.load()
    logs.configure("keeper", found.log_format)
    run_keeper(found)
