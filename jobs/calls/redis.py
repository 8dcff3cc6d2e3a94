"""Lanes in Redis, and the arguments of each script.

The api runs the same scripts on a connection of its own, with `Keys` and `put_arguments`.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Any, cast

from redis import Redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobs.calls import scripts
from jobs.calls.accounting import usage_fields
from jobs.calls.accounting.quota_arguments import (
    BILLED_TTL_S,
    quota_arguments,
    settlement_arguments,
)
from jobs.calls.clients.cluster import ClusterAddress, LanesCluster, is_cluster
from jobs.calls.clients.sentinel import is_sentinel, master_pool
from jobs.calls.clients.single import LanesClient
from jobs.calls.keys import Keys
from jobs.calls.lanes import (
    ALONE,
    API_ALIVE_S,
    API_SILENT,
    PROBED_AFTER_MS,
    RESUME_WITHIN_S,
    TOO_LATE,
    WANTED_MS,
    WORKER_LOST,
    LanesState,
    LaneState,
    Rejection,
    Terms,
    Ticket,
)
from jobs.calls.messages import Call, CallUsage, Reply, pack_call, pack_replies, unpack_call
from jobs.calls.quotas import FREE, Estimate, Exceeded, Quota, Remaining
from jobs.calls.streams.log import (
    KEPT_S,
    MOST_DEATHS,
    CallLog,
    Progress,
    end_arguments,
    progress_arguments,
    read_log,
    usage_arguments,
)
from jobs.calls.streams.rollout import append_deaths
from jobs.calls.tiers.admission import EVER_MS, pack_terms
from jobs.calls.tiers.tier import ALIKE, ALIKE_MS, Speed, read_tiers
from jobs.states import INTERRUPTIBLE

REPLY_TTL_S = 60  # of replies that no api process fetches: longer than a silent one has calls
CANCELLED_TTL_S = 60  # of the list of dropped calls; only generation hosts read theirs
_PREFIX_TTL_S = 60  # after the latest call that had it
RECOVERED = "millrace:recovered"
"""Key of the number of calls that were recovered and that no keeper has counted yet."""
WAKE_TTL_S = 60  # of a notification that no slot waits for
LATE_MS = 2000  # after its end a minute is over: a clock may be set back a little
_LONGEST_LATE_S = 5.0  # that an answer may be overdue
_DROPPED_AT_ONCE = 1000  # calls


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
    allowed_ms = min(terms.allowed_ms, EVER_MS)
    launch = [terms.one_ms, terms.step_ms, terms.full_rows, terms.full_ms]
    named = [keys.lane(call.lane), call.lane, call.id, member, pack_call(call)]
    stays = call.job_class not in INTERRUPTIBLE
    tiers = pack_terms(terms, stays=stays) if terms.others else ""
    costs = [allowed_ms, *launch, terms.slots, PROBED_AFTER_MS, tiers]
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
    """Returns the arguments of DROP, which spares a call that another api process has now."""
    return [keys.lane(""), call.id, keys.cancelled(""), CANCELLED_TTL_S, call.reply_to]


def connect(url: str, timeout_s: float = 5.0) -> "Redis":
    """Returns a client whose commands end within the timeout, each tried once.

    Raises ValueError for a wrong URL.
    """
    if is_cluster(url):
        return cast("Redis", LanesCluster(ClusterAddress.parse(url), timeout_s))
    if is_sentinel(url):
        return LanesClient.from_pool(master_pool(url, timeout_s))
    return LanesClient.from_url(
        url,
        socket_timeout=timeout_s,
        socket_connect_timeout=timeout_s,
        retry=Retry(NoBackoff(), 0),
    )


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
        self._reply = client.register_script(scripts.REPLY)
        self._stream = client.register_script(scripts.STREAM)
        self._logs = client.register_script(scripts.LOGS)
        self._end = client.register_script(scripts.END)
        self._announce = client.register_script(scripts.ANNOUNCE)
        self._profiles = client.register_script(scripts.PROFILES)
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
            self.keys, call, target_ms=target_ms, timeout_ms=timeout_ms, most=most, terms=terms,
            quota=quota, output_tokens=output_tokens,
        )  # fmt: skip
        return refused(self._put(self._names, arguments), quota)

    def look(self, slot: str, least_ms: Mapping[int, float] | None = None) -> LanesState:
        """Implements `CallLanes.look`."""
        arguments: list[Any] = [self.keys.lane(""), slot]
        for bucket, least in least_ms.items() if least_ms else ():
            arguments += bucket, least
        state: Any = self._look(self._names, arguments)
        *times, watcher, replicas, busy, lanes, tiers = state
        looks = [
            LaneState(name.decode(), rows, int(n), float(due), float(turn), urgent)
            for name, rows, n, due, turn, urgent in lanes
        ]
        slots = {name.decode(): float(until) for name, until in zip(*[iter(busy)] * 2, strict=True)}
        now, launch, took, called, gap, watched = map(float, times)
        watch = watched, watcher.decode()
        times, its = (launch, took, called, gap), read_tiers(tiers) if tiers else ()
        return LanesState(now, looks, *times, *watch, replicas, slots, its)

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
        arguments = [*wanted, *launch, *taker, *late, ticket.token, ticket.bulk]
        arguments += [ticket.least_ms, *ticket.without]
        taken: Any = self._take(self._names, arguments)
        return None if taken is None else [_unpack(id, call, ticket) for id, call in taken]

    def abort(self, worker: str, token: int = 0, *, alone: bool = False) -> None:
        """Implements `CallLanes.abort`."""
        arguments = [self.keys.lane(""), f"{worker}#{token or ''}", ALONE if alone else ""]
        aborted: Any = self._abort(self._names, arguments)
        if aborted and not token:
            self._redis.incrby(RECOVERED, aborted)

    def watch(self, slot: str, until_ms: float, rows: int) -> None:
        """Implements `CallLanes.watch`."""
        watch: Any = {"watcher": slot, "watched": f"{until_ms:.3f}", "watched_rows": rows}
        self._redis.hset(self.keys("pool"), mapping=watch)

    def wait_for_wakeup(self, slot: str, timeout_s: float, tier: int = 0) -> None:
        """Implements `CallLanes.wait_for_wakeup`."""
        self._pop(self.keys.wakeups_of(tier), slot, timeout_s)

    def wait_for_dropped(self, worker: str, timeout_s: float) -> list[str]:
        """Implements `CallLanes.wait_for_dropped`."""
        key = self.keys.cancelled(worker)
        name, first = self._pop(key, worker, timeout_s) or (b"", b"")
        if name.decode() != key:
            return []
        others: Any = self._redis.lpop(key, _DROPPED_AT_ONCE) or []
        return [id.decode() for id in (first, *others)]

    def _pop(self, key: str, waiter: str, timeout_s: float) -> tuple[bytes, bytes] | None:
        """Waits for an entry of a list, or for a notification of the waiter; pops it. Returns it
        with the name of its list; None where the time is over."""
        # Redis ends a block up to 100 ms late when it is idle, so the timeout is kept here.
        pool: Any = self._cluster.pool_at(key) if self._cluster else self._redis.connection_pool
        connection: Any = pool.get_connection()
        try:
            lists = key, self.keys.wake(waiter)
            connection.send_command("BLPOP", *lists, timeout_s + _LONGEST_LATE_S)
            if not connection.can_read(timeout=max(0.0, timeout_s)):
                self.notify(waiter)
            popped: tuple[bytes, bytes] | None = connection.read_response()
            return popped
        except BaseException:
            connection.disconnect()
            raise
        finally:
            pool.release(connection)

    def ring(self, tier: int) -> None:
        """Implements `CallLanes.ring`."""
        self._redis.rpush(self.keys.wakeups_of(tier), "1")

    def notify(self, slot: str) -> None:
        """Implements `CallLanes.notify`."""
        with self._redis.pipeline(transaction=False) as pipe:
            pipe.rpush(self.keys.wake(slot), "1")
            pipe.expire(self.keys.wake(slot), WAKE_TTL_S)
            pipe.execute()

    def hold_prefixes(self, worker: str, slot: str, digests: Collection[str], held: bool) -> None:
        """Implements `CallLanes.hold_prefixes`."""
        with self._redis.pipeline(transaction=False) as pipe:
            for key in map(self.keys.prefix, digests):
                if held:
                    pipe.set(key, f"{worker} {slot} {self.keys.wake(slot)}", ex=_PREFIX_TTL_S)
                else:
                    pipe.delete(key)
            pipe.execute()

    def drop(self, call: Call) -> None:
        """Implements `CallLanes.drop`."""
        self._drop(self._names, drop_arguments(self.keys, call))

    def stream(self, progress: Sequence[Progress]) -> list[Call]:
        """Implements `CallLanes.stream`."""
        arguments = progress_arguments(self.keys, progress, REPLY_TTL_S)
        lost: Any = self._stream(self._names, arguments)
        return [progress[place].call for place in lost]

    def logs(self, ids: Sequence[str]) -> list[CallLog]:
        """Implements `CallLanes.logs`."""
        found: Any = self._logs(self._names, list(ids))
        return [read_log(*log) for log in found]

    def end(self, ends: Sequence[tuple[Call, Reply]]) -> None:
        """Implements `CallLanes.end`."""
        arguments = end_arguments(self.keys, ends, REPLY_TTL_S)
        self._end([*self._names, self.keys("used")], arguments)

    def reply(self, reply_to: str, replies: list[Reply]) -> None:
        """Implements `CallLanes.reply`."""
        packed, key = pack_replies(replies, reply_to), self.keys.replies(reply_to)
        arguments: list[Any] = [key, REPLY_TTL_S, packed, BILLED_TTL_S]
        for reply in replies:
            arguments += usage_arguments(reply)
        self._reply([*self._names, self.keys("used")], arguments)

    def usage(self, *, unfinished: bool = False) -> list[CallUsage]:
        """Implements `CallLanes.usage`."""
        key = self.keys("used")
        fields: Any = self._redis.hgetall(key)
        time: Any = self._cluster.time_at(key) if self._cluster else self._redis.time()
        seconds, microseconds = time
        now_ms = seconds * 1000 + microseconds / 1000
        over = inf if unfinished else (now_ms - LATE_MS) // 60_000
        return list(usage_fields.read(fields, over))

    def forget_usage(self, used: Sequence[CallUsage]) -> None:
        """Implements `CallLanes.forget_usage`."""
        fields = usage_fields.names(used)
        if fields:
            self._redis.hdel(self.keys("used"), *fields)

    def announce(
        self, worker: str, ttl_s: float, *,
        ready: bool = True, profile: bytes = b"", speed: Speed | None = None,
    ) -> None:  # fmt: skip
        """Implements `CallLanes.announce`."""
        ttl_ms = int(ttl_s * 1000)
        known: list[Any] = [profile, speed.text() if speed else "", ALIKE, ALIKE_MS]
        self._announce(self._names, [worker, ttl_ms if ready else 0, ttl_ms, *known])

    def profiles(self) -> list[bytes]:
        """Implements `CallLanes.profiles`."""
        _, _, profiles, _ = cast("Any", self._profiles(self._names))
        return list(profiles)

    def announce_loading(self, ttl_s: float) -> None:
        """Tells api processes that a worker loads the model, or starts its engine, for so long."""
        self._redis.register_script(scripts.LOADING)(self._names, [int(ttl_s * 1000)])

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

    def recover(self, given_up: Collection[str] = ()) -> int:
        """Implements `CallLanes.recover`."""
        prefixes = self.keys.lane(""), ALONE, self.keys.replies("")
        arguments: list[Any] = [*prefixes, REPLY_TTL_S, *WORKER_LOST, KEPT_S]
        arguments += self.keys.cancelled(""), CANCELLED_TTL_S, RESUME_WITHIN_S, MOST_DEATHS
        arguments += round(API_ALIVE_S * 1000), *API_SILENT, *given_up
        recovered, *died = cast(list[Any], self._recover(self._names, arguments))
        if recovered:
            self._redis.incrby(RECOVERED, recovered)
        append_deaths(self._redis, died)
        return int(recovered)


def _unpack(id: bytes, call: bytes, ticket: Ticket) -> Call:
    head, _, packed = call.split(b"\n", 2)
    return unpack_call(id.decode(), head, packed, ticket.offset_ms, ticket.holder)


def with_taken_calls(client: "Redis", models: Collection[str]) -> list[str]:
    """Returns those of these models (name@version) of which workers have calls, in one message.
    Raises RedisError."""
    with client.pipeline(transaction=False) as steps:
        for model in models:
            steps.exists(Keys(model)("taken"))
        return [model for model, has in zip(models, steps.execute(), strict=True) if has]


def declare_dead(
    client: "Redis", models: Iterable[str], worker: str, spared: Collection[str] = ()
) -> None:
    """Marks a worker of these models (name@version) as dead, and recovers its calls at once, those
    of `spared` as if it had never had them. Raises RedisError."""
    for model in models:
        lanes = RedisLanes(client, model)
        if model in spared:
            lanes.abort(worker)
        lanes.announce(worker, 0)
        lanes.recover()
