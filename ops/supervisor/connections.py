"""Connections to PostgreSQL that processes may open."""

API, KEEPER, WORKER = 26, 50, 27
"""Most connections of a process, with those of its supervisor and child processes."""
_RESERVE = 13  # superuser_reserved_connections and those of commands


def most(workers: int, apis: int = 1) -> int:
    """Returns the most connections of so many apis, a keeper and the workers, with a reserve."""
    return API * apis + KEEPER + WORKER * workers + _RESERVE
