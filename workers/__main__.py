"""`python -m workers`: one bare worker process, configured by the environment."""

from jobs import settings
from jobs.telemetry import logs
from workers.app import run_worker

if __name__ == "__main__":
    loaded = settings.load()
    logs.configure("worker", loaded.log_format)
    run_worker(loaded)
