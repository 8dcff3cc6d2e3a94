"""`python -m workers`: one bare worker process, configured by the environment."""

from jobs import logs, settings
from workers.app import run_worker

if __name__ == "__main__":
    logs.configure("worker")
    run_worker(settings.load())
