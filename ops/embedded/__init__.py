"""Private PostgreSQL and Redis under a data folder, on Unix sockets alone.

    with EmbeddedServers(home).running() as servers:
        servers.postgres.url, servers.redis.url, servers.redis.broker_url

A home holds:

    lock        pid of the process that runs the servers
    logs/       postgres.log, redis.log
    postgres/   the data folder, of the user that runs PostgreSQL
    secret.key  encrypts the secrets in the database, which are lost with it
    run/        the sockets; where that path is too long, they lie in millrace-<hash> in the
                temporary folder
"""
