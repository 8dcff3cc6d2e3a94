"""`python -m api`: one api process, configured by the environment."""

from api.app import serve
from jobs import logs, settings

if __name__ == "__main__":
    logs.configure("api")
    serve(settings.load())
