"""Pipelined connections to the nodes of a Redis Cluster: each command goes to its key's node."""

import asyncio
import logging
from bisect import bisect_right
from functools import lru_cache, partial
from typing import Any

from redis.crc import key_slot
from redis.exceptions import ConnectionError, RedisError, ResponseError

from api import background
from api.gateway.redis_pipeline import (
    Pipeline,
    RedisPipeline,
    ReplyCallback,
    as_redis_error,
    settle,
)
from jobs.calls.clients.cluster import CLOCK_KEY, ClusterAddress, is_cluster

_log = logging.getLogger(__name__)
_REDIRECTIONS = 5  #: that one command follows
_EVALUATIONS = {"EVAL", "EVALSHA"}
_KEYLESS = {"TIME", "PING"}

Node = tuple[str, int]  #: host and port


def open_pipeline(url: str, timeout_s: float) -> Pipeline:
    """Returns a pipeline to a Redis or to a cluster. Raises ValueError for a wrong URL."""
    if is_cluster(url):
        return ClusterPipeline(ClusterAddress.parse(url), timeout_s)
    return RedisPipeline(url, timeout_s)


class ClusterPipeline:
    """A RedisPipeline to each node; asks for the map of slots with the first command, and again
    when a node redirects a command or its connection is lost."""

    def __init__(self, address: ClusterAddress, timeout_s: float) -> None:
        self._address, self._timeout_s = address, timeout_s
        self._pipes: dict[Node, RedisPipeline] = {}
        self._slots = _SlotMap([])
        self._held: list[tuple[ReplyCallback, tuple[Any, ...]]] = []  # until there is a map
        self._refreshing: asyncio.Task[None] | None = None
        self._closed = False

    def send(self, callback: ReplyCallback, *command: Any) -> None:
        """Implements `Pipeline.send`."""
        self._send_to_slot(callback, command, _slot(_key_of(command)))

    def ask(self, *command: Any) -> "asyncio.Future[Any]":
        """Implements `Pipeline.ask`."""
        return self.ask_at(_key_of(command), *command)

    def ask_at(self, key: str, *command: Any) -> "asyncio.Future[Any]":
        """Implements `Pipeline.ask_at`."""
        future = asyncio.get_running_loop().create_future()
        self._send_to_slot(partial(settle, future), command, _slot(key))
        return future

    async def ping(self) -> bool:
        """Implements `Pipeline.ping`: every node that has slots must answer."""
        if not self._slots.nodes:
            await self.ask("PING")
        await asyncio.gather(*(self._pipe(node).ask("PING") for node in self._slots.nodes))
        return True

    async def close(self) -> None:
        """Implements `Pipeline.close`."""
        self._closed = True
        if self._refreshing:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})
        self._fail_held(ConnectionError("the connection was closed"))
        for pipe in self._pipes.values():
            await pipe.close()

    def _pipe(self, node: Node) -> RedisPipeline:
        if node not in self._pipes:
            self._pipes[node] = RedisPipeline(self._address.node_url(*node), self._timeout_s)
        return self._pipes[node]

    def _send_to_slot(
        self,
        callback: ReplyCallback,
        command: tuple[Any, ...],
        slot: int,
        left: int = _REDIRECTIONS,
    ) -> None:
        node = self._slots.find(slot)
        if self._closed:
            callback(ConnectionError("the connection was closed"))
        elif node is None:
            self._held.append((callback, (command, slot)))
            self._refresh()
        else:
            receive = partial(self._receive, callback, command, slot, left)
            self._pipe(node).send(receive, *command)

    def _receive(
        self, callback: ReplyCallback, command: tuple[Any, ...], slot: int, left: int, reply: Any
    ) -> None:
        """Passes a reply on, or follows a redirection: the node has not run the command."""
        kind, _, where = (
            str(reply).partition(" ") if isinstance(reply, ResponseError) else ("",) * 3
        )
        if kind not in ("MOVED", "ASK") or not left:
            if isinstance(reply, ConnectionError):
                self._refresh()  # a replica may have taken its place
            callback(reply)
            return
        node = _address(where.split()[1], self._slots.find(slot))
        if kind == "MOVED":
            self._slots.move(slot, node)
            self._refresh()
            self._send_to_slot(callback, command, slot, left - 1)
        else:
            pipe = self._pipe(node)
            pipe.send(_ignore, "ASKING")
            pipe.send(partial(self._receive, callback, command, slot, left - 1), *command)

    def _refresh(self) -> None:
        if self._refreshing is None and not self._closed:
            self._refreshing = background.spawn("slots", self._read_slots())

    async def _read_slots(self) -> None:
        """Reads the map of slots, then sends what waits for it; it waits no longer than that."""
        try:
            await self._ask_nodes()
        except Exception as error:
            _log.warning("the slots of the Redis Cluster can't be read: %s", error)
            if not self._slots.nodes:
                self._fail_held(as_redis_error(error))
        finally:
            self._refreshing = None
        held, self._held = self._held, []
        for callback, (command, slot) in held:
            self._send_to_slot(callback, command, slot)

    async def _ask_nodes(self) -> None:
        """Takes the map of the first node that answers. Raises the RedisError of the last one."""
        error: RedisError = ConnectionError("no node of the Redis Cluster was asked")
        for node in dict.fromkeys([*self._slots.nodes, *self._address.hosts]):
            try:
                ranges = await self._pipe(node).ask("CLUSTER", "SLOTS")
            except RedisError as why:
                error = why
                continue
            if slots := [(each[0], _named(each[2], node)) for each in ranges]:
                self._slots = _SlotMap(sorted(slots))
                return
            error = ConnectionError(f"{node[0]}:{node[1]} knows no slots of a Redis Cluster")
        raise error

    def _fail_held(self, error: RedisError) -> None:
        held, self._held = self._held, []
        for callback, _ in held:
            callback(error)


class _SlotMap:
    """Nodes by slot. A slot that nobody has goes to the node before it, which says so."""

    def __init__(self, ranges: list[tuple[int, Node]]) -> None:
        self._starts = [start for start, _ in ranges]
        self._nodes = [node for _, node in ranges]
        self._moved: dict[int, Node] = {}

    @property
    def nodes(self) -> list[Node]:
        return list(dict.fromkeys(self._nodes))

    def find(self, slot: int) -> Node | None:
        if slot in self._moved:
            return self._moved[slot]
        return self._nodes[max(0, bisect_right(self._starts, slot) - 1)] if self._nodes else None

    def move(self, slot: int, node: Node) -> None:
        self._moved[slot] = node


def _key_of(command: tuple[Any, ...]) -> Any:
    if command[0] in _EVALUATIONS:
        return command[3] if command[2] else CLOCK_KEY
    return CLOCK_KEY if command[0] in _KEYLESS else command[1]


@lru_cache(4096)
def _slot(key: str) -> int:
    return key_slot(key.encode())


def _address(text: str, before: Node | None) -> Node:
    """Reads "host:port" of a redirection; without a host it is that of the node that sent it."""
    host, _, port = text.rpartition(":")
    return host or (before[0] if before else ""), int(port)


def _named(node: list[Any], asked: Node) -> Node:
    return (node[0] or b"").decode() or asked[0], node[1]


def _ignore(reply: Any) -> None:
    """ASKING has no result; the command after it tells of errors."""
