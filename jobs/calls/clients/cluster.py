"""Client of a Redis Cluster that holds the call lanes: redis-py's, connected on demand.

Every script and command has keys of one hash slot (ops/docs/decisions/calls.md). Commands without a
key go to the node of CLOCK_KEY, so that all processes date their reports by one clock.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha1
from typing import Any
from urllib.parse import urlsplit

from redis import RedisCluster, RedisError
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.commands import RedisClusterCommands
from redis.exceptions import ConnectionError, NoScriptError, RedisClusterException
from redis.retry import Retry

from jobs import clock
from jobs.telemetry.metrics import record

CLOCK_KEY = "millrace:reports"
DEFAULT_PORT = 6379
_FORM = "a Redis Cluster's address is redis+cluster://host:port,host:port"
_KEYLESS = {"TIME"}
_SCHEMES = {"redis+cluster": "redis", "rediss+cluster": "rediss"}


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """Address of a cluster: `redis+cluster://user:password@host:port,host:port?parameters`, or
    `rediss+cluster://` with TLS; parameters as redis-py's `from_url` takes them."""

    scheme: str  #: of a single node: redis or rediss
    login: str  #: "user:password@", or empty
    hosts: tuple[tuple[str, int], ...]  #: nodes to ask first
    query: str  #: parameters, without the question mark

    @classmethod
    def parse(cls, url: str) -> "ClusterAddress":
        """Parses a URL. Raises ValueError."""
        parts = urlsplit(url)
        if parts.path.strip("/") not in ("", "0"):
            raise ValueError(f"a Redis Cluster has database 0 alone, not {parts.path!r}")
        login, at, nodes = parts.netloc.rpartition("@")
        hosts = hosts_of(nodes, DEFAULT_PORT, _FORM)
        return cls(_SCHEMES[parts.scheme], login + at, hosts, parts.query)

    def node_url(self, host: str, port: int) -> str:
        """Returns the URL of one node, for redis-py."""
        name = f"[{host}]" if ":" in host else host
        query = f"?{self.query}" if self.query else ""
        return f"{self.scheme}://{self.login}{name}:{port}/0{query}"


def hosts_of(nodes: str, port: int, form: str) -> tuple[tuple[str, int], ...]:
    """Parses "host:port,host"; port: where none is named; form: that of the whole address, for the
    error. Raises ValueError."""
    each = [urlsplit(f"redis://{node}") for node in nodes.split(",")]
    if not all(node.hostname for node in each):
        raise ValueError(form)
    return tuple((str(node.hostname), node.port or port) for node in each)


def is_cluster(url: str) -> bool:
    """Returns True for the address of a Redis Cluster."""
    return url.partition("://")[0] in _SCHEMES


class LanesCluster(RedisClusterCommands):
    """Counts and times commands, and raises RedisError alone. Each is tried once; one that was sent
    to a node which no longer has its slot follows the redirection."""

    _event_dispatcher: Any = None  # redis-py's abstract class asks for it

    def __init__(self, address: ClusterAddress, timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._connecting = threading.Lock()
        self._connected: RedisCluster | None = None

    def __enter__(self) -> "LanesCluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections."""
        if self._connected:
            self._connected.close()

    def execute_command(self, *args: Any, **options: Any) -> Any:
        """Executes a command, and records its time or its error."""
        since_s = clock.monotonic()
        with _redis_errors_only():
            cluster = self._cluster()
            if args[0] in _KEYLESS and "target_nodes" not in options:
                options["target_nodes"] = cluster.get_node_from_key(CLOCK_KEY)
            result = cluster.execute_command(*args, **options)
        record.redis_answered(clock.monotonic() - since_s)
        return result

    def register_script(self, script: Any) -> Any:
        """Returns a script that runs on the node of its first key."""
        return ClusterScript(self, script)

    def pipeline(self, transaction: bool = True) -> "_Steps":
        """Returns commands to execute one after the other; they share no transaction."""
        return _Steps(self)

    def time_at(self, key: str) -> tuple[int, int]:
        """Returns the time of a key's node: s, µs."""
        with _redis_errors_only():
            node = self._cluster().get_node_from_key(key)
        result: tuple[int, int] = self.execute_command("TIME", target_nodes=node)
        return result

    def pool_at(self, key: str) -> Any:
        """Returns the connection pool of a key's node, for commands that block."""
        with _redis_errors_only():
            cluster = self._cluster()
            node = cluster.get_node_from_key(key)
            return cluster.get_redis_connection(node).connection_pool

    def get_node(self, **options: Any) -> Any:
        """Returns a node of redis-py's; SCAN needs it."""
        return self._cluster().get_node(**options)

    def _cluster(self) -> Any:
        with self._connecting:
            if self._connected is None:
                first, *others = self._address.hosts
                self._connected = RedisCluster.from_url(
                    self._address.node_url(*first),
                    startup_nodes=[_node(*host) for host in others],
                    protocol=2,
                    socket_timeout=self._timeout_s,
                    socket_connect_timeout=self._timeout_s,
                    # Models on the nodes that are left go on.
                    require_full_coverage=False,
                    retry=Retry(NoBackoff(), 0),
                )
            return self._connected


def _node(host: str, port: int) -> Any:
    return ClusterNode(host, port)  # type: ignore[no-untyped-call]


class ClusterScript:
    """Lua script, sent by its hash, and whole where the node doesn't know it."""

    def __init__(self, client: LanesCluster, source: str) -> None:
        self._client, self._source = client, source
        self._sha = sha1(source.encode()).hexdigest()

    def __call__(self, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Runs it. Raises RedisError."""
        try:
            return self._client.execute_command("EVALSHA", self._sha, len(keys), *keys, *args)
        except NoScriptError:
            return self._client.execute_command("EVAL", self._source, len(keys), *keys, *args)


class _Steps(RedisClusterCommands):
    """Queues commands."""

    _event_dispatcher: Any = None

    def __init__(self, client: LanesCluster) -> None:
        self._client = client
        self._queued: list[Callable[[], Any]] = []

    def __enter__(self) -> "_Steps":
        return self

    def __exit__(self, *_: object) -> None:
        self._queued.clear()

    def execute_command(self, *args: Any, **options: Any) -> "_Steps":
        self._queued.append(lambda: self._client.execute_command(*args, **options))
        return self

    def execute(self) -> list[Any]:
        """Returns the results."""
        return [command() for command in self._queued]


@contextmanager
def _redis_errors_only() -> Iterator[None]:
    """Raises redis-py's errors of clusters, which aren't RedisError, as such; counts errors."""
    try:
        yield
    except NoScriptError:  # it is sent at once
        raise
    except RedisError:
        record.redis_error()
        raise
    except RedisClusterException as error:
        record.redis_error()
        raise ConnectionError(f"the Redis Cluster can't be used: {error}") from error
