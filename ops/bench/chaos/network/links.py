"""Proxies of a fleet: one for each pair of processes that speak to each other."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from ops.bench.chaos.network.faulty_proxy import FaultyProxy, Target, faulty_proxies
from ops.bench.chaos.servers.postgres_standby import url_of_primary
from ops.bench.chaos.servers.replicated import ReplicatedServers

_LOOPBACK = "127.0.0.1"


@contextmanager
def between(
    servers: ReplicatedServers, children: Sequence[str], api_ports: Sequence[int]
) -> Iterator[dict[str, FaultyProxy]]:
    """Runs proxies from each child to each server, from clients to each api, and from a standby to
    its primary. The Sentinels answer each child with the ports of its own proxies to Redis."""
    behind: dict[str, Sequence[Target]] = {
        "postgres": servers.sockets,
        "redis": servers.group.servers,
        "sentinel": servers.group.sentinels,
    }
    targets: dict[str, Target] = {
        _name(child, kind, n): target
        for child in children
        for kind, each in behind.items()
        for n, target in enumerate(each)
    }
    targets |= {of_standby(n): socket for n, socket in enumerate(servers.sockets)}
    for number, port in enumerate(api_ports, start=1):
        targets[of_client(f"api-{number}")] = port
    with faulty_proxies(targets) as links:
        for child in children:
            own = _ports(links, child, "redis")
            known = zip(servers.group.servers, own, strict=True)
            renamed = {_bulk_string(port): _bulk_string(other) for port, other in known}
            for n in range(len(servers.group.sentinels)):
                links[_name(child, "sentinel", n)].renamed = renamed
        yield links


def of_client(api: str) -> str:
    """Returns the name of the link from clients to an api."""
    return f"clients to {api}"


def of_standby(room: int) -> str:
    """Returns the name of the link from a standby to a primary in this room."""
    return f"standby to postgres {room + 1}"


def is_injured(name: str, link: FaultyProxy) -> bool:
    """Returns True if a fault of connections may strike a link: something passes there. Sentinels
    are asked only where a connection to Redis is opened."""
    return link.in_use and "sentinel" not in name


def addresses(
    links: Mapping[str, FaultyProxy], child: str, servers: ReplicatedServers
) -> dict[str, str]:
    """Returns the settings by which a child uses its links."""
    postgres = ((_LOOPBACK, port) for port in _ports(links, child, "postgres"))
    return {
        "database_url": url_of_primary(*postgres),
        "redis_url": servers.group.url_of(_ports(links, child, "sentinel")),
    }


def _name(child: str, kind: str, n: int) -> str:
    return f"{child} to {kind} {n + 1}"


def _ports(links: Mapping[str, FaultyProxy], child: str, kind: str) -> list[int]:
    """Ports of a child's links to all servers of a kind."""
    start = f"{child} to {kind} "
    return [link.port for name, link in links.items() if name.startswith(start)]


def _bulk_string(port: int) -> bytes:
    """Returns a port as a Sentinel writes it; all have five digits."""
    return b"$5\r\n%d\r\n" % port
