"""`millrace bench fuzz`: a million hostile inputs for the code that reads what clients send, and
tables that each door has to read alike.

Each core mutates a corpus by a seed of its own. Nothing may crash, and no exception may escape but
an error that the api answers with; findings are saved and printed.
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
from hashlib import sha256
from pathlib import Path
from random import Random

import click

from ops.bench.harness.scale import Scale
from ops.bench.results.report import Report, scenario

_BATCH = 5000
_TABLES = 100  # of a batch
_DEEP = 0.01  # share of the inputs
_SLOW_S = 2.0  # CPU for one input; more is a finding

#: (target, seed, number of inputs).
Batch = tuple[str, int, int]
#: (target, what happened, input).
Finding = tuple[str, str, bytes]


def run_batch(batch: Batch) -> list[Finding]:
    """Runs a batch; the same one has the same findings."""
    from ops.bench.fuzzing.mutate import deep, mutated
    from ops.bench.fuzzing.targets import TARGETS

    name, seed, inputs = batch
    random, target, found = Random(f"{name}/{seed}"), TARGETS[name], []
    for _ in range(inputs):
        raw = deep(random) if random.random() < _DEEP else mutated(random, target.corpus)
        since_s = time.process_time()
        try:
            target.read(raw)
        except Exception as error:
            found.append((name, f"{type(error).__name__}: {error}"[:300], raw))
        if time.process_time() - since_s > _SLOW_S:
            found.append((name, "slow", raw))
    return found


def compare_tables(batch: tuple[int, int]) -> list[str]:
    """Returns what differs between doors and formats, of tables by seed and number."""
    from ops.bench.fuzzing.tables import differences

    return list(differences(*batch))


@scenario(
    "fuzz", "inputs >= 1000000", "crashes <= 0", "unhandled_exceptions <= 0", "slow <= 0",
    "tables >= 10000", "differences <= 0",
)  # fmt: skip
def run(report: Report, scale: Scale, inputs: int, tables: int, seed: int) -> None:
    """Runs so many inputs, and so many tables, in all."""
    since_s, crashes = time.monotonic(), 0
    counts: Counter[str] = Counter()
    found: list[Finding] = []
    batches = list(_batches(inputs, seed))
    with ProcessPoolExecutor(os.cpu_count(), initializer=_limit_memory) as pool:
        results = pool.map(run_batch, batches)
        with click.progressbar(batches, label="fuzzing", file=sys.stderr) as progress:
            try:
                for name, _, number in progress:
                    found += next(results)
                    counts[name] += number
            except BrokenProcessPool:
                crashes += 1
    _save(found)
    different = _compare(tables, seed)
    slow = sum(what == "slow" for _, what, _ in found)
    report.add(**{f"{target}_inputs": count for target, count in sorted(counts.items())})
    report.add(
        inputs=counts.total(),
        seconds=time.monotonic() - since_s,
        crashes=crashes,
        slow=slow,
        unhandled_exceptions=len(found) - slow,
        tables=tables,
        differences=different,
    )


def _compare(tables: int, seed: int) -> int:
    """Returns how many tables aren't read alike, and prints them."""
    sizes = [min(_TABLES, tables - start) for start in range(0, tables, _TABLES)]
    batches = [(seed * 1_000_000 + n, size) for n, size in enumerate(sizes)]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        different = [text for found in pool.map(compare_tables, batches) for text in found]
    for text in different:
        click.echo(f"  {text}", err=True)
    return len(different)


def _limit_memory() -> None:
    """Makes an input that needs more memory a crash."""
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))


def _batches(inputs: int, seed: int) -> Iterator[Batch]:
    from ops.bench.fuzzing.targets import TARGETS

    for target, fuzzed in TARGETS.items():
        total = round(inputs * fuzzed.share)
        for n, start in enumerate(range(0, total, _BATCH)):
            yield target, seed * 1_000_000 + n, min(_BATCH, total - start)


def _save(found: list[Finding]) -> None:
    """Writes a file for each kind of finding."""
    folder = Path(tempfile.gettempdir()) / "millrace-fuzz"
    kinds = {(target, what.partition(":")[0]): (what, raw) for target, what, raw in found}
    for (target, _), (what, raw) in kinds.items():
        folder.mkdir(exist_ok=True)
        path = folder / f"{target}-{sha256(raw).hexdigest()[:12]}"
        path.write_bytes(raw)
        click.echo(f"  {target}: {what}: {path}", err=True)
