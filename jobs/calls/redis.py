"""Lanes in Redis: the keys, and each script's arguments. The api calls the same scripts through
its asyncio client; `Keys` and `put_arguments` are what both share."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobs.calls import scripts
from jobs.calls.lanes import ALONE, WORKER_LOST, LaneLook, Look, Refusal, Ticket
from jobs.calls.messages import Call, Reply, pack_call, pack_replies, unpack_call

REPLY_TTL_S = 30
"""Replies that no api process fetches (it died) are forgotten after this."""


_KEPT = ("lanes", "calls", "ready", "bell", "pool", "taken", "alive")


@dataclass(frozen=True, slots=True)
class Keys:
    """The names under which one model version's lanes are kept."""

    model: str

    def __call__(self, what: str) -> str:
        return f"millrace:{{{self.model}}}:{what}"

    def all(self) -> list[str]:
        return [self(what) for what in _KEPT]

    @property
    def bell(self) -> str:
        return self("bell")

    def lane(self, lane: str) -> str:
        return self("lane:" + lane)


def reply_key(reply_to: str) -> str:
    return f"millrace:replies:{reply_to}"


def put_arguments(
    keys: Keys, call: Call, *, target_ms: int, timeout_ms: int, most: int
) -> list[Any]:
    packed = pack_call(call)
    bounds = [target_ms, timeout_ms, most]
    return [keys.lane(call.lane), call.lane, call.id, packed, *bounds, call.reply_to]


def drop_arguments(keys: Keys, call: Call) -> list[Any]:
    return [keys.lane(""), call.id]


def connect(url: str, timeout_s: float = 5.0) -> "Redis":
    """A client whose every command ends within the timeout, tried once."""
    return Redis.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


class RedisLanes:
    """CallLanes in Redis, 6.2 or later."""

    def __init__(self, client: "Redis", model: str) -> None:
        self.keys = Keys(model)
        self._put = client.register_script(scripts.PUT)
        self._look = client.register_script(scripts.LOOK)
        self._take = client.register_script(scripts.TAKE)
        self._drop = client.register_script(scripts.DROP)
        self._reply = client.register_script(scripts.REPLY)
        self._announce = client.register_script(scripts.ANNOUNCE)
        self._recover = client.register_script(scripts.RECOVER)

    def put(self, call: Call, *, target_ms: int, timeout_ms: int, most: int) -> Refusal | None:
        arguments = put_arguments(
            self.keys, call, target_ms=target_ms, timeout_ms=timeout_ms, most=most
        )
        refusal: Any = self._put(self.keys.all(), arguments).decode()
        return refusal or None

    def look(self) -> Look:
        now, launch, took, replicas, *lanes = self._look(self.keys.all(), [self.keys.lane("")])
        looks = [LaneLook(name.decode(), rows, float(due)) for name, rows, due in lanes]
        return Look(float(now), looks, float(launch), float(took), replicas)

    def take(self, ticket: Ticket) -> list[Call]:
        lane = self.keys.lane(ticket.lane)
        before = f"{ticket.launched_before_ms:.3f}"
        taker = [ticket.worker, ticket.lease_ms]
        arguments: list[Any] = [lane, ticket.lane, ticket.rows, before, ticket.took_ms, *taker]
        return [
            unpack_call(id.decode(), *call.split(b"\n", 1))
            for id, call in self._take(self.keys.all(), arguments)
        ]

    def drop(self, call: Call) -> None:
        self._drop(self.keys.all(), drop_arguments(self.keys, call))

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        ids = [reply.id for reply in replies]
        message: list[Any] = [reply_key(reply_to), REPLY_TTL_S, pack_replies(replies)]
        self._reply(self.keys.all(), [*message, *ids])

    def announce(self, worker: str, ttl_s: float, *, ready: bool = True) -> None:
        ttl_ms = int(ttl_s * 1000)
        self._announce(self.keys.all(), [worker, ttl_ms if ready else 0, ttl_ms])

    def recover(self) -> int:
        prefixes = self.keys.lane(""), ALONE, reply_key("")
        arguments: list[Any] = [*prefixes, REPLY_TTL_S, *WORKER_LOST]
        found: Any = self._recover(self.keys.all(), arguments)
        return int(found)


def declare_dead(client: "Redis", models: Iterable[str], worker: str) -> None:
    """For who saw a worker of these models (name@version) end: the calls that it had in hand are
    recovered at the keeper's next look, not when its lease is over. Raises RedisError."""
    for model in models:
        RedisLanes(client, model).announce(worker, 0)
