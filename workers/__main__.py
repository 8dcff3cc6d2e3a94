"""`python -m workers`: one bare worker process, configured by the environment."""

if __name__ == "__main__":
    from jobs.processes import startup

    startup.begin()

    from jobs import settings
    from jobs.telemetry import logs
    from workers.app import run_worker

    loaded = settings.load()
    logs.configure("worker", loaded.log_format)
    run_worker(loaded)
