"""Connections to PostgreSQL that processes may open."""

API, KEEPER, WORKER = 26, 50, 27
"""Most connections of a process, with those of its supervisor and child processes."""
_RESERVE = 13  # superuser_reserved_connections and those of commands


def most(workers: int) -> int:
    """Returns the most connections of an api, a keeper and so many workers, with a reserve."""
    return API + KEEPER + WORKER * workers + _RESERVE
