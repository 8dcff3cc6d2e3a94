"""`python -m workers.keeper`: one keeper process, configured by the environment."""

if __name__ == "__main__":
    # Not at the top: a child process with a transfer loads this file, and keeps nothing.
    from jobs.processes import startup

    startup.begin()

    from jobs import settings
    from jobs.telemetry import logs
    from workers.keeper.keeper import run_keeper

    loaded = settings.load()
    logs.configure("keeper", loaded.log_format)
    run_keeper(loaded)
