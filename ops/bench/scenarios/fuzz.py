"""`millrace bench fuzz`: a million hostile inputs for what reads what clients send.

Each core mutates a corpus by a seed of its own. Asked is that nothing crashes and that nothing
escapes but an error that the api answers with; what does is saved, and printed.
"""

import os
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from random import Random

import click

from ops.bench.results.report import Report

ASKED = {"inputs": ">= 1000000", "crashes": "<= 0", "unhandled_exceptions": "<= 0", "slow": "<= 0"}
_BATCH = 5000
_DEEP = 0.01  # of the inputs
_SLOW_S = 2.0
"""CPU for one input; more is a finding too."""


@dataclass(frozen=True, slots=True)
class Batch:
    target: str
    seed: int
    inputs: int


@dataclass(slots=True)
class Outcome:
    """found: (what was raised, the input)."""

    target: str
    inputs: int
    slow: int = 0
    found: list[tuple[str, bytes]] = field(default_factory=list)


def run_batch(batch: Batch) -> Outcome:
    """The same batch finds the same."""
    from ops.bench.fuzzing.mutate import deep, mutated
    from ops.bench.fuzzing.targets import TARGETS

    random, corpus = Random(f"{batch.target}/{batch.seed}"), TARGETS[batch.target].corpus
    outcome, read = Outcome(batch.target, batch.inputs), TARGETS[batch.target].read
    for _ in range(batch.inputs):
        raw = deep(random) if random.random() < _DEEP else mutated(random, corpus)
        since_s = time.process_time()
        try:
            read(raw)
        except Exception as error:
            outcome.found.append((f"{type(error).__name__}: {error}"[:300], raw))
        if time.process_time() - since_s > _SLOW_S:
            outcome.slow += 1
            outcome.found.append(("slow", raw))
    return outcome


def run(inputs: int, seed: int) -> None:
    """inputs: in all."""
    report, since_s = Report("fuzz", ASKED), time.monotonic()
    counts: Counter[str] = Counter()
    found: list[tuple[str, str, bytes]] = []
    crashes = slow = 0
    with ProcessPoolExecutor(os.cpu_count(), initializer=_bounded) as pool:
        waiting = [pool.submit(run_batch, batch) for batch in _batches(inputs, seed)]
        with click.progressbar(waiting, label="fuzzing", file=sys.stderr) as progress:
            for future in progress:
                try:
                    outcome = future.result()
                except BrokenProcessPool:
                    crashes += 1
                    break
                counts[outcome.target] += outcome.inputs
                slow += outcome.slow
                found += [(outcome.target, what, raw) for what, raw in outcome.found]
    _save(found)
    report.add(**{f"{target}_inputs": count for target, count in sorted(counts.items())})
    report.add(
        inputs=counts.total(),
        seconds=time.monotonic() - since_s,
        crashes=crashes,
        slow=slow,
        unhandled_exceptions=sum(what != "slow" for _, what, _ in found),
    )
    report.finish()


def _bounded() -> None:
    """An input that wants more memory than that is a crash."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def _batches(inputs: int, seed: int) -> Iterator[Batch]:
    from ops.bench.fuzzing.targets import TARGETS

    for target, fuzzed in TARGETS.items():
        left = round(inputs * fuzzed.share)
        number = seed * 1_000_000
        while left > 0:
            yield Batch(target, number, min(left, _BATCH))
            left, number = left - _BATCH, number + 1


def _save(found: list[tuple[str, str, bytes]]) -> None:
    """One file for each kind of finding."""
    folder = Path(tempfile.gettempdir()) / "millrace-fuzz"
    kinds = {(target, what.partition(":")[0]): (what, raw) for target, what, raw in found}
    for (target, _), (what, raw) in kinds.items():
        folder.mkdir(exist_ok=True)
        path = folder / f"{target}-{sha256(raw).hexdigest()[:12]}"
        path.write_bytes(raw)
        click.echo(f"  {target}: {what}: {path}", err=True)
