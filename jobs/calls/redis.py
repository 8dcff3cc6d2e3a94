"""Lanes in Redis: the keys, and each script's arguments. The api calls the same scripts through
its asyncio client; `Keys` and `put_arguments` are what both share."""

from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobs.calls import scripts
from jobs.calls.lanes import LaneLook, Look, Refusal, Ticket
from jobs.calls.messages import Call, Reply, pack_call, pack_replies, unpack_call

REPLY_TTL_S = 30
"""Replies that no api process fetches (it died) are forgotten after this."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The names under which one model version's lanes are kept."""

    model: str

    def __call__(self, what: str) -> str:
        return f"millrace:{{{self.model}}}:{what}"

    def all(self) -> list[str]:
        return [self(what) for what in ("lanes", "calls", "ready", "bell", "pool", "deadlines")]

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
    return [keys.lane(call.lane), call.lane, call.id, packed, target_ms, timeout_ms, most]


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
        self._client = client
        self._put, self._look, self._take, self._drop, self._announce = (
            client.register_script(script)
            for script in (
                scripts.PUT,
                scripts.LOOK,
                scripts.TAKE,
                scripts.DROP,
                scripts.ANNOUNCE,
            )
        )

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
        arguments: list[Any] = [lane, ticket.lane, ticket.rows, before, ticket.took_ms]
        return [
            unpack_call(id.decode(), packed, *map(float, times.split()))
            for id, packed, times in self._take(self.keys.all(), arguments)
        ]

    def drop(self, call: Call) -> None:
        self._drop(self.keys.all(), [self.keys.lane(call.lane), call.id])

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        key = reply_key(reply_to)
        pipe = self._client.pipeline(transaction=False)
        pipe.rpush(key, pack_replies(replies))
        pipe.expire(key, REPLY_TTL_S)
        pipe.execute()

    def announce(self, worker: str, ttl_s: float) -> None:
        self._announce(self.keys.all(), [worker, int(ttl_s * 1000)])
