"""Counts what one call, one job of one item and one slice of 1,000 items cost.

The counts depend on the code, not on the machine: Python function calls, SQL statements,
transactions and messages to Redis of api and worker threads, commands that Redis runs, bytes of
PostgreSQL's log (WAL). Api and worker run in this process, over servers of its own. Each count is
the least of several repetitions: periodic work can only add to one.

`python -m tests.budgets.measure` prints the counts; `--write WHY` stores them in budgets.json.
`--check` repeats an operation only until all its counts are within their budgets.
"""

import argparse
import asyncio
import concurrent.futures
import json
import queue
import selectors
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from inspect import CO_GENERATOR
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import psycopg
import redis

from api.app import create_app
from api.middleware.fast_path import FastPath
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from jobs.store import db
from migrations.run import migrate
from ops.embedded.servers import EmbeddedServers
from workers.device import model_host
from workers.process.runtime import Runtime

BUDGETS = Path(__file__).with_name("budgets.json")
#: Repetitions of each operation.
REPETITIONS = {"call": 60, "one_item_job": 60, "slice_of_1000_items": 30}
TOLERANCE = 1.02
"""Counts that are this many times their budget are within it."""
#: Counts that an operation is held to; the others hold periodic work alone.
_API = ("api_function_calls", "api_sql_statements")
_WORKER = (
    *("worker_function_calls", "worker_sql_statements", "worker_sql_transactions"),
    *("worker_redis_messages", "wal_bytes"),
)
HELD = {
    "call": (*_API, "device_function_calls", "redis_commands", "redis_round_trips"),
    "one_item_job": (*_API, "api_sql_transactions", *_WORKER),
    "slice_of_1000_items": (*_WORKER, "device_function_calls"),
}
SLICE_ITEMS = 1000
_MODELS = f"""
[[model]]
name = "echo"
version = "1"
engine = "echo"
target_ms = 50
[model.limits]
max_batch = {SLICE_ITEMS}
slice_items = {SLICE_ITEMS}
in_flight = 1
"""
_THREADS = {
    "api": ("api", "AnyIO", "asyncio_"),
    "worker": ("nudge", "replies-"),  # claims, prepares, settles
    "device": ("device-",),  # decides, launches, delivers
}
#: Modules whose calls depend on which thread is quicker: they don't count.
_TIMING = tuple(
    module.__file__.removesuffix("__init__.py")
    for module in (asyncio, concurrent.futures, threading, queue, selectors)
    if module.__file__
)
_SETTLED_S = 0.02  # nothing was sent to Redis or PostgreSQL for so long: the operation is over
_WITHIN_S = 60.0

Counts = dict[str, int]
_Request = tuple[str, bytes, Future[tuple[int, bytes]]]


class Profile:
    """Functions that threads of this process entered, by thread: all, and those of the drivers."""

    #: Entry points of the drivers: one statement, one end of a transaction, one message to Redis.
    _DRIVERS: Mapping[CodeType, str] = {
        psycopg.Cursor.execute.__code__: "sql_statements",
        psycopg.Cursor.executemany.__code__: "sql_statements",
        psycopg.Copy.__enter__.__code__: "sql_statements",
        psycopg.Connection.commit.__code__: "sql_transactions",
        redis.connection.AbstractConnection.send_packed_command.__code__: "redis_messages",
    }

    def __init__(self) -> None:
        self._counts: Counter[tuple[int, str]] = Counter()

    def start(self) -> None:
        """Counts in all threads that start from now on."""
        threading.setprofile(self._enter)

    def _enter(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        resumes = code.co_flags & CO_GENERATOR  # as often as a socket has a piece of an answer
        if event == "call" and not resumes and not code.co_filename.startswith(_TIMING):
            thread = threading.get_ident()
            self._counts[thread, "function_calls"] += 1
            if name := self._DRIVERS.get(code):
                self._counts[thread, name] += 1

    def read(self) -> Counts:
        """Counts until now, of api and worker threads; threads of periodic work don't count."""
        found = Counter[str]()
        for thread in threading.enumerate():
            for process, prefixes in _THREADS.items():
                if thread.name.startswith(prefixes):
                    for name in ("function_calls", *set(self._DRIVERS.values())):
                        found[f"{process}_{name}"] += self._counts[thread.ident or 0, name]
        return dict(found)


class RedisCommands:
    """Commands that Redis ran (MONITOR): all of them, and those that clients sent."""

    _MARK = "end of an operation"

    def __init__(self, url: str) -> None:
        self.all = self.sent = 0
        self._client = redis.Redis.from_url(url)
        self._marks = queue.SimpleQueue[bool]()
        self._monitor = self._client.monitor()
        self._monitor.__enter__()
        threading.Thread(target=self._follow, name="monitor", daemon=True).start()

    def _follow(self) -> None:
        sys.setprofile(None)
        with suppress(redis.ConnectionError):  # Redis is stopped at the end
            for command in self._monitor.listen():
                if self._MARK in command["command"]:
                    self._marks.put(True)
                else:
                    self.all += 1
                    self.sent += command["client_type"] != "lua"

    def sync(self) -> None:
        """Waits until every command that ran before this one is counted."""
        self._client.echo(self._MARK)
        self._marks.get(timeout=_WITHIN_S)


class Bench:
    """An api and a worker in this process, and counters over both."""

    def __init__(self, home: Path, servers: EmbeddedServers) -> None:
        models = home / "models.toml"
        models.write_text(_MODELS)
        self.settings = Settings(
            home=home,
            database_url=servers.postgres.url,
            redis_url=servers.redis.url,
            models=models,
            lease_s=600.0,  # heartbeats stay away
            metrics_window_s=60.0,
        )
        self._admin = psycopg.connect(db.plain_url(servers.postgres.url), autocommit=True)
        self._profile = Profile()
        self._profile.start()
        self._redis = RedisCommands(servers.redis.url)
        # One launch a slice: it doesn't depend on how much was prepared when the device looked.
        setattr(model_host, "_PREPARED_AT_ONCE", SLICE_ITEMS)  # noqa: B010
        self.runtime = Runtime(self.settings, ModelsFile(models))
        self.runtime.start()
        self.runtime.claim_timer.stop()  # it looks by the clock
        self._nudges = ThreadPoolExecutor(1, thread_name_prefix="nudge")
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, name="api", daemon=True).start()
        self._api = create_app(self.settings)
        self._app = FastPath(self._api)
        self._requests = asyncio.Queue[_Request | None]()
        self._ready = threading.Event()
        self._serving = asyncio.run_coroutine_threadsafe(self._serve(), self._loop)
        assert self._ready.wait(_WITHIN_S)

    def close(self) -> None:
        """Stops both; the profile ends first."""
        threading.setprofile(None)  # type: ignore[arg-type]
        self._loop.call_soon_threadsafe(self._requests.put_nowait, None)
        self._serving.result(_WITHIN_S)
        self.runtime.stop()

    async def _serve(self) -> None:
        """Answers requests one by one, in one task: AnyIO's threads live as long as it does."""
        async with self._api.router.lifespan_context(self._api):
            self._ready.set()
            while request := await self._requests.get():
                path, body, response = request
                try:
                    response.set_result(await self._request(path, body))
                except Exception as error:
                    response.set_exception(error)

    async def _request(self, path: str, body: bytes) -> tuple[int, bytes]:
        arrived = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[Any] = []
        ended = asyncio.get_running_loop().create_future()

        async def receive() -> Any:
            return arrived.pop() if arrived else await ended

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"",
            "root_path": "", "headers": [
                (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body)),
            ],
            "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
        }  # fmt: skip
        await self._app(scope, receive, send)
        ended.cancel()
        return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])

    def post(self, path: str, body: Any, wanted: int) -> None:
        """Sends a request to the api, without a socket."""
        response = Future[tuple[int, bytes]]()
        request = path, json.dumps(body).encode(), response
        self._loop.call_soon_threadsafe(self._requests.put_nowait, request)
        status, content = response.result(_WITHIN_S)
        assert status == wanted, content

    def call(self) -> None:
        """One call, from request to response."""
        self.post("/infer", {"model": "echo", "input": "hello"}, 200)

    def one_item_job(self) -> None:
        """One job of one item: submitted, claimed, run and settled."""
        self.post("/jobs", {"model": "echo", "items": ["hello"]}, 202)
        self._work()

    def submit_slice(self) -> None:
        """A job of one slice; its submission isn't counted."""
        self.post("/jobs", {"model": "echo", "items": ["hello"] * SLICE_ITEMS}, 202)

    def slice_of_1000_items(self) -> None:
        """One slice: claimed, run and settled."""
        self._work()

    def _work(self) -> None:
        assert self.runtime.slices
        assert self._nudges.submit(self.runtime.slices.work).result(_WITHIN_S)

    def warm(self) -> None:
        """Waits until the model is served."""
        deadline_s = time.monotonic() + _WITHIN_S
        while True:
            try:
                self.call()
                return
            except AssertionError:
                if time.monotonic() > deadline_s:
                    raise
                threading.Event().wait(0.05)

    def count(self, operation: Callable[[], None]) -> Counts:
        """The counts of one operation."""
        self._settle()
        before = self._read()
        operation()
        self._settle()
        after = self._read()
        return {name: after[name] - before.get(name, 0) for name in after}

    def _read(self) -> Counts:
        [(wal_bytes,)] = self._admin.execute(
            "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint"
        ).fetchall()
        return {
            **self._profile.read(),
            "redis_commands": self._redis.all,
            "redis_round_trips": self._redis.sent,
            "wal_bytes": wal_bytes,
        }

    def _settle(self) -> None:
        """Waits until api and worker are idle: replies are sent, the device waits for work."""
        before = None
        while before != (now := (self._redis.all, self._profile.read())):
            before = now
            threading.Event().wait(_SETTLED_S)
            self._redis.sync()


@contextmanager
def _bench() -> Iterator[Bench]:
    with (
        tempfile.TemporaryDirectory() as folder,
        EmbeddedServers(Path(folder)).running() as servers,
    ):
        engine = db.connect(servers.postgres.url, pool_size=1)
        migrate(engine)
        engine.dispose()
        with psycopg.connect(db.plain_url(servers.postgres.url), autocommit=True) as admin:
            for setting in ("full_page_writes = off", "autovacuum = off"):
                admin.execute(f"ALTER SYSTEM SET {setting}")
            admin.execute("SELECT pg_reload_conf()")
        bench = Bench(Path(folder), servers)
        try:
            yield bench
        finally:
            bench.close()


def measure(budgets: Mapping[str, Counts] | None = None) -> dict[str, Counts]:
    """Measures the least of each count, by operation. budgets: within which it is low enough."""
    found: dict[str, Counts] = {}
    with _bench() as bench:
        bench.warm()
        for name, repetitions in REPETITIONS.items():
            for _ in range(repetitions):
                if name == "slice_of_1000_items":
                    bench.submit_slice()
                counts = bench.count(getattr(bench, name))
                least = found.setdefault(name, counts)
                found[name] = {key: min(least[key], counts[key]) for key in HELD[name]}
                if budgets and not above(budgets[name], found[name]):
                    break
    return found


def above(budgets: Counts, counts: Counts) -> dict[str, tuple[int, int]]:
    """Returns counts above their budgets, with these."""
    return {
        name: (counts[name], allowed)
        for name, allowed in budgets.items()
        if counts[name] > allowed * TOLERANCE
    }


def stored_budgets() -> dict[str, Counts]:
    """Returns the budgets by operation."""
    counts: dict[str, Counts] = json.loads(BUDGETS.read_text())["counts"]
    return counts


def write(counts: Mapping[str, Counts], why: str) -> None:
    """Stores counts as the budgets of this version. why: the reason why counts changed."""
    stored = {
        "date": datetime.now(UTC).date().isoformat(),
        "python": f"{sys.version_info.major}.{sys.version_info.minor}",
        "why": why,
        "counts": counts,
    }
    BUDGETS.write_text(json.dumps(stored, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.budgets.measure")
    parser.add_argument("--write", metavar="WHY", help="store the counts; why they changed")
    parser.add_argument("--check", action="store_true", help="repeat until within the budgets")
    arguments = parser.parse_args()
    measured = measure(stored_budgets() if arguments.check else None)
    if arguments.write:
        write(measured, arguments.write)
    print(json.dumps(measured))
