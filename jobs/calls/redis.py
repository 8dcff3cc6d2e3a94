"""Lanes in Redis, and the arguments of each script.

The api runs the same scripts on a connection of its own, with `Keys` and `put_arguments`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobs.calls import scripts
from jobs.calls.accounting.quota_arguments import (
    BILLED_TTL_S,
    quota_arguments,
    settlement_arguments,
)
from jobs.calls.client import LanesClient
from jobs.calls.cluster import ClusterAddress, LanesCluster, is_cluster
from jobs.calls.keys import Keys
from jobs.calls.lanes import (
    ALONE,
    PROBED_AFTER_MS,
    TOO_LATE,
    WANTED_MS,
    WORKER_LOST,
    LanesState,
    LaneState,
    Rejection,
    Terms,
    Ticket,
)
from jobs.calls.messages import (
    Call,
    CallUsage,
    Delta,
    Reply,
    pack_call,
    pack_deltas,
    pack_replies,
    unpack_call,
)
from jobs.calls.quotas import FREE, Estimate, Exceeded, Quota, Remaining

REPLY_TTL_S = 30  # of replies that no api process fetches, since it died
CANCELLED_TTL_S = 60  # of the list of dropped calls; only generation hosts read theirs
WAKE_TTL_S = 60  # of a notification that no slot waits for
LATE_MS = 2000  # after its end a minute is over: a clock may be set back a little


_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")
_USED = ("succeeded", "failed", "units", "device_us", *_TOKENS)


_EVER_MS = 1e12
_LONGEST_LATE_S = 5.0  # that an answer may be overdue


def put_arguments(
    keys: Keys,
    call: Call,
    *,
    target_ms: int,
    timeout_ms: int,
    most: int,
    terms: Terms,
    quota: Quota = FREE,
    more_units: int = 0,
    output_tokens: int = 0,
) -> list[Any]:
    """Returns the arguments of PUT. quota: on a cluster charged before, and only settled;
    more_units: charged to it on top of the call's size; output_tokens: as for `CallLanes.put`."""
    member = f"{call.size} {call.id} {call.weight:g} {call.tenant}"
    bounds = [target_ms, timeout_ms, most]
    allowed_ms = min(terms.allowed_ms, _EVER_MS)
    launch = [terms.one_ms, terms.step_ms, terms.full_rows, terms.full_ms]
    named = [keys.lane(call.lane), call.lane, call.id, member, pack_call(call)]
    costs = [allowed_ms, *launch, terms.slots, PROBED_AFTER_MS]
    asker = [call.tenant, f"{call.weight:g}"]
    arguments = [*named, *bounds, call.reply_to, call.size, *costs, *asker]
    if quota is not FREE:
        estimate = Estimate(call.size + more_units, output_tokens)
        checked = Quota(quota.tenant) if keys.clustered else quota
        arguments += quota_arguments(checked, estimate)
        arguments += settlement_arguments(quota, estimate, keys, call.id)
    return arguments


def refused(answer: Any, quota: Quota = FREE) -> Rejection | None:
    """Reads the answer of PUT; None: the call is admitted."""
    why, wait_ms = answer[:2]
    if not why:
        return None
    if why != b"quota":
        return Rejection(why.decode(), float(wait_ms))
    number, left = answer[2:]
    exceeded = Exceeded(quota.bounds[number - 1], float(wait_ms), left)
    return Rejection("quota", exceeded.wait_ms, exceeded)


def read_remaining(answer: Any) -> list[Remaining]:
    """Reads the rest of each rate from the answer of PUT for an admitted call."""
    return [Remaining(*pair) for pair in zip(answer[2::2], answer[3::2], strict=True)]


def drop_arguments(keys: Keys, call: Call) -> list[Any]:
    """Returns the arguments of DROP."""
    return [keys.lane(""), call.id, keys.cancelled(""), CANCELLED_TTL_S]


def connect(url: str, timeout_s: float = 5.0) -> "Redis":
    """Returns a client whose commands end within the timeout, each tried once.

    Raises ValueError for a wrong URL.
    """
    if is_cluster(url):
        return cast("Redis", LanesCluster(ClusterAddress.parse(url), timeout_s))
    return LanesClient.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


def with_usage(client: "Redis") -> Iterator[str]:
    """Yields the models (name@version) that have usage to be recorded; scans all keys."""
    before, after = Keys("*")("used").split("*")
    for key in client.scan_iter(match=f"{before}*{after}", count=1000):
        yield key.decode().removeprefix(before).removesuffix(after)


class RedisLanes:
    """CallLanes in Redis, 6.2 or later, or on a cluster of it.

    On a cluster quotas are in slots of their tenants, and not checked by `put`
    (api/gateway/cluster/quotas.py).
    """

    def __init__(self, client: "Redis", model: str) -> None:
        self._cluster = client if isinstance(client, LanesCluster) else None
        self.keys = Keys(model, clustered=self._cluster is not None)
        self._names = self.keys.all()
        self._redis = client
        self._put = client.register_script(scripts.PUT)
        self._look = client.register_script(scripts.LOOK)
        self._take = client.register_script(scripts.TAKE)
        self._abort = client.register_script(scripts.ABORT)
        self._drop = client.register_script(scripts.DROP)
        self._stream = client.register_script(scripts.STREAM)
        self._reply = client.register_script(scripts.REPLY)
        self._announce = client.register_script(scripts.ANNOUNCE)
        self._wanted = client.register_script(scripts.WANTED)
        self._recover = client.register_script(scripts.RECOVER)

    def put(
        self,
        call: Call,
        *,
        target_ms: int,
        timeout_ms: int,
        most: int,
        terms: Terms,
        quota: Quota = FREE,
        output_tokens: int = 0,
    ) -> Rejection | None:
        """Implements `CallLanes.put`."""
        arguments = put_arguments(
            self.keys,
            call,
            target_ms=target_ms,
            timeout_ms=timeout_ms,
            most=most,
            terms=terms,
            quota=quota,
            output_tokens=output_tokens,
        )
        return refused(self._put(self._names, arguments), quota)

    def look(self, slot: str) -> LanesState:
        """Implements `CallLanes.look`."""
        state: Any = self._look(self._names, [self.keys.lane(""), slot])
        *times, watcher, replicas, busy, lanes = state
        looks = [
            LaneState(name.decode(), rows, int(n), float(due), float(turn))
            for name, rows, n, due, turn in lanes
        ]
        slots = {name.decode(): float(until) for name, until in zip(*[iter(busy)] * 2, strict=True)}
        now, launch, took, called, gap, watched = map(float, times)
        watch = watched, watcher.decode()
        return LanesState(now, looks, launch, took, called, gap, *watch, replicas, slots)

    def take(self, ticket: Ticket) -> list[Call] | None:
        """Implements `CallLanes.take`."""
        lane = self.keys.lane(ticket.lane)
        before = f"{ticket.launched_before_ms:.3f}"
        wanted: list[Any] = [
            lane,
            ticket.lane,
            ticket.rows,
            ticket.units,
            int(ticket.sized),
            before,
        ]
        launch: list[Any] = [ticket.took_ms, ticket.needs_ms, ticket.reason]
        taker: list[Any] = [ticket.worker, ticket.slot, ticket.lease_ms]
        late: list[Any] = [self.keys.replies(""), REPLY_TTL_S, *TOO_LATE]
        arguments = [*wanted, *launch, *taker, *late, ticket.token, ticket.bulk, *ticket.without]
        taken: Any = self._take(self._names, arguments)
        return (
            None if taken is None else [_unpack(id, call, ticket.offset_ms) for id, call in taken]
        )

    def abort(self, worker: str, token: int, *, alone: bool = False) -> None:
        """Implements `CallLanes.abort`."""
        arguments = [self.keys.lane(""), f"{worker}#{token}", ALONE if alone else ""]
        self._abort(self._names, arguments)

    def watch(self, slot: str, until_ms: float, rows: int) -> None:
        """Implements `CallLanes.watch`."""
        watch: Any = {"watcher": slot, "watched": f"{until_ms:.3f}", "watched_rows": rows}
        self._redis.hset(self.keys("pool"), mapping=watch)

    def wait_for_wakeup(self, slot: str, timeout_s: float) -> None:
        """Implements `CallLanes.wait_for_wakeup`."""
        # Redis ends a block up to 100 ms late when it is idle, so the timeout is kept here.
        pool: Any = (
            self._cluster.pool_at(self.keys.wakeups)
            if self._cluster
            else self._redis.connection_pool
        )
        connection: Any = pool.get_connection()
        try:
            lists = self.keys.wakeups, self.keys("wake:" + slot)
            connection.send_command("BLPOP", *lists, timeout_s + _LONGEST_LATE_S)
            if not connection.can_read(timeout=max(0.0, timeout_s)):
                self.notify(slot)
            connection.read_response()
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def notify(self, slot: str) -> None:
        """Implements `CallLanes.notify`."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.rpush(self.keys("wake:" + slot), "1")
            pipe.expire(self.keys("wake:" + slot), WAKE_TTL_S)
            pipe.execute()

    def drop(self, call: Call) -> None:
        """Implements `CallLanes.drop`."""
        self._drop(self._names, drop_arguments(self.keys, call))

    def stream(self, worker: str, deltas: Mapping[str, Sequence[Delta]]) -> list[str]:
        """Implements `CallLanes.stream`."""
        arguments: list[Any] = [self.keys.cancelled(""), worker, REPLY_TTL_S]
        for reply_to, its in deltas.items():
            arguments += self.keys.replies(reply_to), pack_deltas(its)
        cancelled: Any = self._stream(self._names, arguments)
        return [id.decode() for id in cancelled]

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        """Implements `CallLanes.reply`."""
        packed, key = pack_replies(replies, reply_to), self.keys.replies(reply_to)
        arguments: list[Any] = [key, REPLY_TTL_S, packed, BILLED_TTL_S]
        for reply in replies:
            succeeded, used = int(reply.error is None), reply.tokens
            tokens = f"{used.input} {used.cached} {used.output}" if used else ""
            arguments += (reply.id, f"{reply.job_class} {reply.tenant}", succeeded)
            arguments += (reply.units, reply.device_us, tokens)
        self._reply([*self._names, self.keys("used")], arguments)

    def usage(self, *, unfinished: bool = False) -> list[CallUsage]:
        """Implements `CallLanes.usage`."""
        key = self.keys("used")
        fields: Any = self._redis.hgetall(key)
        time: Any = self._cluster.time_at(key) if self._cluster else self._redis.time()
        seconds, microseconds = time
        now_ms = seconds * 1000 + microseconds / 1000
        over = int((now_ms - LATE_MS) // 60_000)
        sums: dict[tuple[int, str, str], dict[str, int]] = {}
        for field, value in fields.items():
            minute, job_class, what, tenant = field.decode().split(" ", 3)
            if unfinished or int(minute) < over:
                sums.setdefault((int(minute), tenant, job_class), {})[what] = int(value)
        return [
            CallUsage(*key, *(counts.get(what, 0) for what in _USED))
            for key, counts in sorted(sums.items())
        ]

    def forget_usage(self, used: Sequence[CallUsage]) -> None:
        """Implements `CallLanes.forget_usage`."""
        fields = [
            f"{one.minute} {one.job_class} {what} {one.tenant}" for one in used for what in _USED
        ]
        if fields:
            self._redis.hdel(self.keys("used"), *fields)

    def announce(
        self, worker: str, ttl_s: float, *, ready: bool = True, profile: bytes = b""
    ) -> None:
        """Implements `CallLanes.announce`."""
        ttl_ms = int(ttl_s * 1000)
        self._announce(self._names, [worker, ttl_ms if ready else 0, ttl_ms, profile])

    def profile(self) -> bytes:
        """Implements `CallLanes.profile`."""
        profile: Any = self._redis.hget(self.keys("pool"), "profile")
        return bytes(profile or b"")

    def wanted(self) -> bool:
        """Implements `CallLanes.wanted`."""
        return bool(self._wanted(self._names, [WANTED_MS]))

    def flushes(self) -> dict[str, int]:
        """Implements `CallLanes.flushes`."""
        pool: Any = self._redis.hgetall(self.keys("pool"))
        return {
            name.decode().removeprefix("flush:"): int(count)
            for name, count in pool.items()
            if name.startswith(b"flush:")
        }

    def recover(self) -> int:
        """Implements `CallLanes.recover`."""
        prefixes = self.keys.lane(""), ALONE, self.keys.replies("")
        arguments: list[Any] = [*prefixes, REPLY_TTL_S, *WORKER_LOST]
        recovered: Any = self._recover(self._names, arguments)
        return int(recovered)


def _unpack(id: bytes, call: bytes, offset_ms: float) -> Call:
    head, _, packed = call.split(b"\n", 2)
    return unpack_call(id.decode(), head, packed, offset_ms)


def with_taken_calls(client: "Redis", models: Collection[str]) -> list[str]:
    """Returns those of these models (name@version) of which workers have calls, in one message.

    Raises RedisError.
    """
    with client.pipeline(transaction=False) as steps:
        for model in models:
            steps.exists(Keys(model)("taken"))
        return [model for model, has in zip(models, steps.execute(), strict=True) if has]


def declare_dead(client: "Redis", models: Iterable[str], worker: str) -> None:
    """Marks a worker of these models (name@version) as dead.

    The keeper recovers its calls in its next round, not after the lease. Raises RedisError.
    """
    for model in models:
        RedisLanes(client, model).announce(worker, 0)
