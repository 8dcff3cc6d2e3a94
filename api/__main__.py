"""`python -m api`: one api process, configured by the environment."""

if __name__ == "__main__":
    # Not above: a process for ingests loads this file, and serves nothing.
    from api.app import serve
    from jobs import settings
    from jobs.telemetry import logs

    found = settings.load()
    logs.configure("api", found.log_format)
    serve(found)
