"""A private PostgreSQL and a private Redis under a data folder, on Unix sockets alone.

    with EmbeddedServers(home) as servers:
        servers.postgres.url, servers.redis.url, servers.redis.broker_url

A home holds:

    lock        who runs the servers of this home (its pid)
    logs/       postgres.log, redis.log
    postgres/   the data folder, of the user that runs PostgreSQL
    secret.key  encrypts the secrets in the database: lost with it, or with a copy of it, they are
    run/        the sockets; where that path is too long, they lie in millrace-<hash> in the
                temporary folder
"""

from ops.embedded.errors import EmbeddedError, HomeInUse
from ops.embedded.lock import HomeLock
from ops.embedded.postgres import EmbeddedPostgres
from ops.embedded.redis import EmbeddedRedis
from ops.embedded.servers import EmbeddedServers

__all__ = [
    "EmbeddedError",
    "EmbeddedPostgres",
    "EmbeddedRedis",
    "EmbeddedServers",
    "HomeInUse",
    "HomeLock",
]
