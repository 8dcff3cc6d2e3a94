"""`python -m workers`: one bare worker process, configured by the environment."""

from jobs import settings
from jobs.telemetry import logs
from workers.app import run_worker

if __name__ == "__main__":
    found = settings.load()
    logs.configure("worker", found.log_format)
    run_worker(found)
