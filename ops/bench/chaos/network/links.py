"""Proxies of a fleet: one for each pair of processes that speak to each other."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from ops.bench.chaos.network.faulty_proxy import FaultyProxy, Target, faulty_proxies
from ops.embedded.layout import DATABASE, POSTGRES_SOCKET, USER, Layout


def between(
    home: Layout, children: Sequence[str], api_ports: Sequence[int]
) -> AbstractContextManager[dict[str, FaultyProxy]]:
    """Runs proxies from each child to PostgreSQL and to Redis, and from clients to each api."""
    targets: dict[str, Target] = {}
    for child in children:
        targets[f"{child} to postgres"] = str(home.run / POSTGRES_SOCKET)
        targets[f"{child} to redis"] = str(home.redis_socket)
    for number, port in enumerate(api_ports, start=1):
        targets[of_client(f"api-{number}")] = port
    return faulty_proxies(targets)


def of_client(api: str) -> str:
    """Returns the name of the link from clients to an api."""
    return f"clients to {api}"


def addresses(links: Mapping[str, FaultyProxy], child: str) -> dict[str, str]:
    """Returns the settings by which a child uses its links; none where it has none."""
    if f"{child} to redis" not in links:
        return {}
    postgres, redis = links[f"{child} to postgres"].port, links[f"{child} to redis"].port
    return {
        "database_url": f"postgresql+psycopg://{USER}@127.0.0.1:{postgres}/{DATABASE}",
        "redis_url": f"redis://127.0.0.1:{redis}/0",
    }
