"""`python -m api`: one api process, configured by the environment."""

if __name__ == "__main__":
    # Not at the top: a child process of the ingest pool loads this file, and serves nothing.
    from jobs.processes import startup

    startup.begin()

    from api.server import serve
    from jobs import settings
    from jobs.telemetry import logs

    loaded = settings.load()
    logs.configure("api", loaded.log_format)
    serve(loaded)
