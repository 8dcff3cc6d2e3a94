"""Limit of open files: each connection of a client is one."""

import logging
import resource

WANTED = 16_384
"""Files of an api with 10,000 open calls, and as many more as its jobs and child processes need."""

_log = logging.getLogger("millrace.processes")


def raise_limit(wanted: int = WANTED) -> int:
    """Raises this process's limit to what the system allows; returns it.

    Logs a warning where that is less than `wanted`: connections beyond it are not accepted.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        soft = most
    if soft != resource.RLIM_INFINITY and soft < wanted:
        _log.warning(
            "this process may open %d files, and each connection of a client is one: raise the "
            "hard limit to %d (LimitNOFILE of systemd, --ulimit nofile of docker, ulimit -Hn)",
            *(soft, wanted),
        )
    return soft
