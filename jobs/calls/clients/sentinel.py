"""Address of a Redis behind Sentinels, and connections to whichever server is the master.

redis-py asks the Sentinels at each connection, and connects again where its server has become a
replica.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

from redis.asyncio import sentinel as asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import RedisError
from redis.retry import Retry
from redis.sentinel import MasterNotFoundError, Sentinel, SentinelConnectionPool

from jobs.calls.clients.cluster import hosts_of

DEFAULT_PORT = 26379
_SCHEMES = {"redis+sentinel": "redis", "rediss+sentinel": "rediss"}
_FORM = "the address of a Redis behind Sentinels is redis+sentinel://host:port,host:port/SERVICE/DB"
_OF_SENTINELS = {"sentinel_username", "sentinel_password"}
_DOWN = "its master is down"
_ANSWER_S = 1.0  # of a Sentinel; the next one is asked then


@dataclass(frozen=True, slots=True)
class SentinelAddress:
    """Address: `redis+sentinel://user:password@host:port,host:port/SERVICE/DB?parameters`, or
    `rediss+sentinel://` with TLS to all of them. Hosts and ports are the Sentinels', user and
    password Redis'; the Sentinels' own are the parameters `sentinel_username` and
    `sentinel_password`, the others are as redis-py's `from_url` takes them."""

    login: str  #: "user:password@" for Redis, or empty
    hosts: tuple[tuple[str, int], ...]  #: the Sentinels, in the order in which they are asked
    service: str  #: name that the Sentinels have for the master and its replicas
    options: dict[str, Any]  #: of a connection to Redis, as redis-py names them
    sentinel_login: dict[str, Any]  #: options of one to a Sentinel

    @classmethod
    def parse(cls, url: str) -> "SentinelAddress":
        """Parses a URL. Raises ValueError."""
        parts = urlsplit(url)
        service, _, db = parts.path.strip("/").partition("/")
        if not service or not (db or "0").isdecimal():
            raise ValueError(_FORM)
        login, at, nodes = parts.netloc.rpartition("@")
        given, own = dict(parse_qsl(parts.query)), {}
        for name in _OF_SENTINELS & given.keys():
            own[name.removeprefix("sentinel_")] = given.pop(name)
        scheme = _SCHEMES[parts.scheme]
        node = f"{scheme}://{login}{at}host/{db or 0}?{urlencode(given)}"
        options: dict[str, Any] = parse_url(node)  # type: ignore[no-untyped-call]
        for name in ("host", "connection_class"):
            options.pop(name, None)
        options["ssl"] = scheme == "rediss"
        return cls(login + at, hosts_of(nodes, DEFAULT_PORT, _FORM), service, options, own)

    @property
    def tls(self) -> dict[str, Any]:
        """Options of TLS that Redis and the Sentinels share; empty: none."""
        if not self.options["ssl"]:
            return {}
        given = {name: value for name, value in self.options.items() if name.startswith("ssl_")}
        return {"ssl_cert_reqs": "required"} | given

    @property
    def netlocs(self) -> list[str]:
        """The Sentinels as in a URL."""
        return [
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.hosts
        ]

    def asking(self, timeout_s: float, retry: Any) -> dict[str, Any]:
        """Returns redis-py's options of connections to the Sentinels, so that all of them can be
        asked within the timeout, and the master then."""
        answer_s = min(_ANSWER_S, timeout_s / (len(self.hosts) + 1))
        limits = {"socket_timeout": answer_s, "socket_connect_timeout": answer_s, "retry": retry}
        return {"ssl": self.options["ssl"], **self.tls, **self.sentinel_login, **limits}


def is_sentinel(url: str) -> bool:
    """Returns True for the address of a Redis behind Sentinels."""
    return url.partition("://")[0] in _SCHEMES


def master_pool(url: str, timeout_s: float) -> SentinelConnectionPool:
    """Returns connections to the master. Raises ValueError for a wrong URL."""
    address, retry = SentinelAddress.parse(url), Retry(NoBackoff(), 0)
    asking = address.asking(timeout_s, retry)
    sentinels = _Sentinels(address.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    limits = {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, "retry": retry}
    options = address.options | limits
    return SentinelConnectionPool(address.service, sentinels, **options)  # type: ignore[no-untyped-call]


def async_master_pool(url: str, timeout_s: float) -> asyncio.SentinelConnectionPool:
    """Returns connections of an event loop to the master; they have no timeout but to connect.
    Raises ValueError for a wrong URL."""
    address, retry = SentinelAddress.parse(url), AsyncRetry(NoBackoff(), 0)
    asking = address.asking(timeout_s, retry)
    sentinels = _AsyncSentinels(address.hosts, sentinel_kwargs=asking)  # type: ignore[no-untyped-call]
    limits = {"protocol": 2, "socket_connect_timeout": timeout_s, "retry": retry}
    options = address.options | limits
    return asyncio.SentinelConnectionPool(address.service, sentinels, **options)  # type: ignore[no-untyped-call]


class _Sentinels(Sentinel):
    """Says of each Sentinel why it doesn't help; redis-py hides a wrong password."""

    def discover_master(self, service_name: str) -> tuple[str, int]:
        said = list[tuple[Any, object]]()
        for sentinel in self.sentinels:
            try:
                state: Any = sentinel.sentinel_master(service_name)
                if self.check_master_state(state, service_name):  # type: ignore[no-untyped-call]
                    return state["ip"], state["port"]
                said.append((sentinel, _DOWN))
            except RedisError as error:
                said.append((sentinel, error))
        raise _not_found(service_name, said)


class _AsyncSentinels(asyncio.Sentinel):
    async def discover_master(self, service_name: str) -> tuple[str, int]:
        said = list[tuple[Any, object]]()
        for sentinel in self.sentinels:
            try:
                state: Any = await sentinel.sentinel_master(service_name)
                if self.check_master_state(state, service_name):
                    return state["ip"], state["port"]
                said.append((sentinel, _DOWN))
            except RedisError as error:
                said.append((sentinel, error))
        raise _not_found(service_name, said)


def _not_found(service: str, said: Sequence[tuple[Any, object]]) -> MasterNotFoundError:
    reasons = []
    for sentinel, why in said:
        options = sentinel.connection_pool.connection_kwargs
        reasons.append(f"{options['host']}:{options['port']}: {why}")
    return MasterNotFoundError(f"no Sentinel names a master of {service!r}: {'; '.join(reasons)}")
