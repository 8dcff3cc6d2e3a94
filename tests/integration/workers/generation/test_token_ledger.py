"""The ledger equals the token log, call by call, however calls end: what the engine of a worker
emitted is billed once, and nothing else is. Each call has a tenant of its own, so that its row in
the ledger is found again."""

import random
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from sqlalchemy import Engine, text

from jobs.calls.messages import Call, CallUsage
from jobs.calls.redis import RedisLanes
from jobs.models.watcher import ModelsFile
from jobs.settings import Settings
from tests.integration.workers.generation.host_bench import Bench
from tests.integration.workers.generation.logged_host import WORKER, command
from tests.support.wait import eventually
from workers.keeper.call_billing import CallBilling

Way = Literal["stop", "length", "withdrawn", "cancelled", "late", "refused", "choices", "long"]
WAYS: tuple[Way, ...] = ("stop", "length", "withdrawn", "cancelled", "late", "refused", "choices")
STREAMS, KILLED = 1000, 60
WORDS = 12
ENDLESS = {"min_tokens": 4000}
FIELDS: dict[Way, dict[str, Any]] = {
    "stop": {},
    "length": {"max_tokens": 7, "min_tokens": 7},
    "withdrawn": ENDLESS,
    "cancelled": ENDLESS,
    "late": {**ENDLESS, "timeout_ms": 400},
    "refused": {"text": ""},
    "choices": {"n": 3, "max_tokens": 5},
    "long": {"max_tokens": 500, "min_tokens": 500},
}
MODELS = """
[[model]]
name = "talk"
version = "1"
engine = "echo_chat"
[model.price]
per_1k_output_tokens = 10
"""


def call(bench: Bench, id: str, way: Way) -> Call:
    fields = {"text": "word " * WORDS, "stream": True, "tenant": f"tenant-{id}", **FIELDS[way]}
    return bench.call(id, fields.pop("text"), **fields)


class MinuteIsOver(RedisLanes):
    """Lanes whose current minute is billed too."""

    def usage(self, *, unfinished: bool = True) -> list[CallUsage]:
        return super().usage(unfinished=True)


def ledger(database: Engine, settings: Settings, bench: Bench, file: Path) -> dict[str, Any]:
    """(input, output) tokens by call, as a keeper stores them."""
    file.write_text(MODELS)
    lanes = MinuteIsOver(bench.lanes._redis, "talk@1")  # noqa: SLF001
    CallBilling(settings.redis_url, database, ModelsFile(file), lambda _: lanes).run_once()
    sums = "tenant_id, sum(input_tokens), sum(output_tokens)"
    with database.connect() as tx:
        rows = tx.execute(text(f"SELECT {sums} FROM usage GROUP BY tenant_id")).all()
    return {tenant.removeprefix("tenant-"): (int(i), int(o)) for tenant, i, o in rows}


def mismatches(
    billed: dict[str, Any], log: Counter[str], prompts: dict[str, int]
) -> Sequence[tuple[str, Any, Any]]:
    wrong = []
    for id, words in prompts.items():
        found = billed.get(id, (0, 0))
        if found[1] != log[id] or (found[0] != words if log[id] else found[0] not in (0, words)):
            wrong.append((id, found, (words, log[id])))
    return wrong


def test_a_call_is_billed_for_the_tokens_of_its_engine_however_it_ends(
    hosted: Callable[..., Bench], database: Engine, settings: Settings, tmp_path: Path
) -> None:
    """The engine dies now and then, blocks are few, so that items and calls give way."""
    chance = random.Random(17)
    bench = hosted(blocks=600, sequences=48, context_tokens=8192)
    bench.start()
    ways = {f"c{n}": WAYS[n % len(WAYS)] for n in range(STREAMS)}
    calls: dict[str, Call] = {}
    seen = 0
    for id, way in ways.items():
        calls[id] = call(bench, id, way)
        if way == "withdrawn":
            eventually(lambda: chance.random() < 0.3)  # before, while, and after it is taken
            bench.lanes.drop(calls[id])
        if chance.random() < 0.03:
            bench.engine.deaths = chance.choice((1, 2, 4))  # of the last some calls fail
        seen = cancel_begun(bench, ways, calls, seen)
    ends = {id for id, way in ways.items() if way not in ("withdrawn", "cancelled")}

    def ended() -> bool:
        nonlocal seen
        seen = cancel_begun(bench, ways, calls, seen)
        return ends <= bench.replies.keys() and not bench.engine.ids

    eventually(ended)
    bench.host.stop()
    bench.drained()
    reasons = Counter(error[0] if error else "" for _, error, _ in bench.replies.values())
    assert {"", "deadline_passed", "invalid_input", "transient"} <= reasons.keys()
    billed = ledger(database, settings, bench, tmp_path / "models.toml")
    prompts = {id: 0 if way == "refused" else WORDS for id, way in ways.items()}
    assert mismatches(billed, bench.engine.tokens, prompts) == []
    assert bench.engine.restarts > 3


def cancel_begun(bench: Bench, ways: dict[str, Way], calls: dict[str, Call], seen: int) -> int:
    """Drops the calls whose first tokens came. Returns the number of deltas that were looked at."""
    bench.drained()
    for delta in bench.deltas[seen:]:
        if delta.number == 0 and ways[delta.id] == "cancelled":
            bench.lanes.drop(calls[delta.id])
    return len(bench.deltas)


def test_a_call_is_billed_once_for_what_its_client_saw_where_a_worker_was_killed(
    hosted: Callable[..., Bench], database: Engine, settings: Settings, tmp_path: Path
) -> None:
    bench, log = hosted(), tmp_path / "log"
    ids = [f"k{n}" for n in range(KILLED)]
    for id in ids:
        call(bench, id, "stop" if int(id[1:]) % 2 else "long")
    with subprocess.Popen(command(settings.redis_url, log)) as process:
        eventually(lambda: (bench.read(), len(bench.replies) > 5)[1])
        process.send_signal(signal.SIGKILL)
    bench.drained()
    first = set(bench.replies)
    assert len(first) < KILLED
    bench.lanes.announce(WORKER, 0)
    assert bench.lanes.recover() > 0
    bench.start()
    bench.ended(ids)
    bench.host.stop()
    killed = Counter(log.read_text().split())
    assert sum(killed[id] for id in ids if id not in first) > 0
    seen = Counter(one.id for one in bench.deltas for part in one.choices for _ in part.tokens)
    assert all(seen[id] <= killed[id] + bench.engine.tokens[id] for id in ids)
    billed = ledger(database, settings, bench, tmp_path / "models.toml")
    assert mismatches(billed, seen, dict.fromkeys(ids, WORDS)) == []
