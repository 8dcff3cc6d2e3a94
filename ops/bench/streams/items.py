"""Items of a job while workers are killed: what is generated again, and whether each ends once, in
order, billed for its tokens."""

import signal
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from jobs import clock
from jobs.models.model import Limits, Model
from ops.bench.chaos.fleet import Fleet, send
from ops.bench.harness.platform import say
from ops.bench.harness.scale import Scale
from ops.bench.load.client import Client
from ops.bench.results.report import Report
from ops.bench.streams.injection import Injection
from ops.bench.streams.target import streaming_fleet

ASKED = (
    "recomputed_tokens_share <= 0.15",
    "items_lost <= 0",
    "items_repeated <= 0",
    "items_out_of_order <= 0",
    "items_changed <= 0",
    "billing_mismatches <= 0",
)
_ITEMS, _TOKENS = 100, 400
_KILL_EVERY_S = 5.0
_STEP_MS, _PLACES = 25.0, 16
_NAME = "paced"
_WORDS = 7
_END_WITHIN_S = 600.0
_BUSY = """
    SELECT w.name FROM workers w JOIN slices s ON s.lease_owner = w.incarnation
    WHERE s.state = 'leased' AND w.ended_at IS NULL GROUP BY w.name ORDER BY count(*) DESC
"""
_BILLED = """
    SELECT sum(succeeded), sum(input_tokens), sum(output_tokens) FROM usage WHERE kind = 'items'
"""


def measure(report: Report, scale: Scale) -> None:
    """Runs a job on two workers, one of which is killed every five seconds. The tokens that they
    generate are counted in a file, which outlives them."""
    with TemporaryDirectory(prefix="millrace-bench-") as folder:
        log = Path(folder, "tokens")
        with streaming_fleet(_model(log)) as fleet, closing(Client(fleet.urls[0])) as client:
            count = int(scale.seconds(_ITEMS))
            job = client.post(_NAME, [{"input": _chat(n)} for n in range(count)])
            kills = _kill_until_it_ends(Injection(fleet, f"{_NAME}@1"), client, job)
            results = [orjson.loads(line) for line in client.results(job)]
            mismatches = _mismatches(fleet, results)
        generated = sum(map(int, log.read_text().split()))
    _report(report, results, count)
    needed = count * _TOKENS
    say(f"{kills} kills, {generated} tokens generated for {needed}")
    report.add(
        item_kills=kills,
        recomputed_tokens_share=(generated - needed) / needed,
        billing_mismatches=mismatches,
    )


def _model(log: Path) -> Model:
    return Model(
        _NAME, "1", "echo_chat",
        options={"step_ms": _STEP_MS, "sequences": _PLACES, "token_log": str(log)},
        limits=Limits(slice_items=_PLACES),
    )  # fmt: skip


def _words(n: int) -> list[str]:
    return [f"item{n}word{k}" for k in range(_WORDS)]


def _chat(n: int) -> dict[str, Any]:
    message = {"role": "user", "content": " ".join(_words(n))}
    return {"messages": [message], "min_tokens": _TOKENS, "max_tokens": _TOKENS}


def _text(n: int) -> str:
    words = _words(n)
    return " ".join(words[k % _WORDS] for k in range(_TOKENS))


def _kill_until_it_ends(injection: Injection, client: Client, job: str) -> int:
    """Kills the worker with the most slices every five seconds, until the job has ended."""
    kills, fleet = 0, injection.fleet
    next_s = clock.monotonic() + _KILL_EVERY_S

    def step() -> bool:
        """Kills a worker when it is time to; returns True once the job has ended."""
        nonlocal kills, next_s
        if clock.monotonic() >= next_s and (busy := fleet.query(_BUSY)):
            next_s += _KILL_EVERY_S
            kills += send(int(busy[0][0].rpartition(":")[2]), signal.SIGKILL)
        return bool(client.job(job)["state"] == "completed")

    injection.wait(step, f"{job} has ended", _END_WITHIN_S)
    return kills


def _report(report: Report, results: list[Any], count: int) -> None:
    seqs = [result["seq"] for result in results]
    texts = {
        result["seq"]: result["output"]["choices"][0]["message"]["content"]
        for result in results
        if result["output"]
    }
    report.add(
        items_lost=count - len(texts),
        items_repeated=len(seqs) - len(set(seqs)),
        items_out_of_order=sum(a > b for a, b in pairwise(seqs)),
        items_changed=sum(text != _text(n) for n, text in texts.items()),
    )


def _mismatches(fleet: Fleet, results: list[Any]) -> int:
    """Counts sums of the ledger that differ from those of the results."""
    usages = [result["output"]["usage"] for result in results if result["output"]]
    expected = (
        len(results),
        sum(usage["prompt_tokens"] for usage in usages),
        sum(usage["completion_tokens"] for usage in usages),
    )
    [billed] = fleet.query(_BILLED) or [(0, 0, 0)]
    wrong: int = sum(int(a or 0) != b for a, b in zip(billed, expected, strict=True))
    changed: int = sum(usage["completion_tokens"] != _TOKENS for usage in usages)
    return wrong + changed
