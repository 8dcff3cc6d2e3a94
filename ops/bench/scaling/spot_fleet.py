"""Live part: one worker that stays, and two on machines that are reclaimed one after the other,
with notice and without, while jobs run and streams are read."""

import signal
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path

import orjson
import psutil

from jobs import clock, ids
from jobs.calls.keys import Keys
from ops.bench.chaos.clients.client import Ledger
from ops.bench.chaos.clients.streams import StreamClients
from ops.bench.chaos.clients.workload import CHAT, ITEM_TOKENS, Work
from ops.bench.chaos.fleet import Fleet, send
from ops.bench.harness.platform import say, wait_until
from ops.bench.load.client import Client
from ops.bench.results.report import Report
from ops.processes.children import Child, Supervisor

_NOTICE_S = 30.0
_SPOT = 2  # machines
_JOBS = (("shout", 3000), (CHAT, 40))  # items of a job of each model; they follow each other
_WITHIN_S, _LOOK_S = 300.0, 0.05
_READY = """
    SELECT incarnation FROM workers WHERE state = 'ready' AND reclaimed_by IS NULL
        AND spot_notice_s > 0 AND split_part(name, ':', 2)::int = ANY(%s)
"""
_LEASED = "SELECT count(*) FROM slices WHERE state = 'leased' AND lease_owner = %s"
_DRAINED = "SELECT state = 'stopped' AND reclaimed_by = 'file' FROM workers WHERE incarnation = %s"
_BILLED = """
    SELECT coalesce(sum(succeeded), 0), coalesce(sum(output_tokens), 0) FROM usage
    WHERE kind = 'items' AND job_id = %s
"""


class SpotFleet(Fleet):
    """Fleet with machines that may be reclaimed; each is one `millrace worker`."""

    def __init__(self, home: Path) -> None:
        super().__init__(home, apis=2, keepers=2, workers=1)
        self.files = [home.with_name(f"reclaimed-{n}") for n in range(_SPOT)]
        self.spot = [
            self._child("worker", n, spot_notice_s=_NOTICE_S, spot_file=file, price=0.35)
            for n, file in enumerate(self.files, 2)
        ]
        self.workers += self.spot
        self.supervisor = Supervisor([*self.apis, *self.keepers, *self.workers])

    def ready_worker(self, child: Child) -> int | None:
        """Returns the worker of a machine, once it is ready."""
        rows = self.query(_READY, [_below(child)])
        return int(rows[0][0]) if rows else None

    def in_hand(self, worker: int) -> Counter[str]:
        """Counts the streams and slices that a worker has."""
        taken: dict[bytes, bytes] = self.redis.hgetall(Keys(f"{CHAT}@1")("taken"))  # type: ignore[assignment]
        streams = sum(slot.startswith(b"%d#" % worker) for slot in taken.values())
        leased = self.query(_LEASED, [worker]) or [(0,)]
        return Counter(streams=streams, slices=int(leased[0][0]))

    def has_drained(self, worker: int | None) -> bool:
        """Returns True once a worker has ended by itself."""
        return self.query(_DRAINED, [worker]) == [(True,)]


class Traffic:
    """Jobs and streams that follow each other until it closes, and what was wrong with them."""

    def __init__(self, fleet: SpotFleet, folder: Path) -> None:
        self._fleet = fleet
        self.closing = threading.Event()
        self.found: Counter[str] = Counter()
        self.troubles: list[str] = []
        self.jobs: list[tuple[str, Work]] = []  #: that have ended
        ledger = Ledger(folder / "ledger.jsonl")
        addresses = fleet.ports, fleet.settings.redis_url
        self.streams = StreamClients(*addresses, 1, ledger, self.troubles)

    def start(self, pool: ThreadPoolExecutor) -> list[Future[None]]:
        """Starts all clients."""
        jobs = [pool.submit(self._run_jobs, model, total) for model, total in _JOBS]
        return [*jobs, pool.submit(self.streams.run, self.closing)]

    def _run_jobs(self, model: str, total: int) -> None:
        with closing(Client(self._fleet.urls[0])) as client:
            for number in count():
                if self.closing.is_set():
                    return
                work = Work(f"{model}-{number}", model, total)
                job = client.post(model, work.items())
                self._check(work, [orjson.loads(line) for line in client.results(job)])
                self.jobs.append((job, work))

    def _check(self, work: Work, results: list[dict[str, object]]) -> None:
        seqs = Counter(result["seq"] for result in results)
        self.found["items"] += work.total
        self.found["lost"] += sum(not seqs[seq] for seq in range(work.total))
        self.found["duplicated"] += sum(times - 1 for times in seqs.values())
        for result in results:
            shown = work.shown(result["output"]) if result["output"] else None
            if shown != work.expected(int(str(result["seq"])))[1]:
                self.found["wrong"] += 1
                self.troubles.append(f"{work.tag}: {result}")


def measure(report: Report, reclaims: int) -> None:
    """Reclaims so many machines with notice, and as many without."""
    with _running() as (fleet, folder), ThreadPoolExecutor() as pool:
        traffic, in_hand = Traffic(fleet, folder), Counter[str]()
        running = traffic.start(pool)
        try:
            for number in range(2 * reclaims):
                in_hand += _reclaim(fleet, number % _SPOT, notice=number // _SPOT % 2 == 0)
        finally:
            traffic.closing.set()
            _await(fleet, lambda: all(one.done() for one in running), "the clients end")
        for one in running:
            one.result()
        misbilled = _misbilled(fleet, traffic)
    for trouble in traffic.troubles[:5]:
        say(trouble)
    tally, found = traffic.streams.tally, traffic.found
    report.add(
        "spot_",
        noticed=reclaims, unwarned=reclaims, jobs=len(traffic.jobs), items=found["items"],
        items_lost=found["lost"], items_duplicated=found["duplicated"], items_wrong=found["wrong"],
        streams=tally.streams, streams_interrupted=in_hand["streams"],
        slices_interrupted=in_hand["slices"], tokens_lost=tally.lost,
        tokens_repeated=tally.repeated, streams_wrong=tally.wrong, misbilled=misbilled,
    )  # fmt: skip


@contextmanager
def _running() -> Iterator[tuple[SpotFleet, Path]]:
    say(f"starting a worker that stays, and {_SPOT} spot workers")
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as folder:
        home = Path(folder, "home")
        home.mkdir()
        fleet = SpotFleet(home)
        try:
            fleet.start()
            yield fleet, Path(folder)
        finally:
            fleet.stop()


def _reclaim(fleet: SpotFleet, number: int, *, notice: bool) -> Counter[str]:
    """Reclaims a machine whose worker is ready, and puts another in its place. Returns what that
    worker had in hand."""
    child, file = fleet.spot[number], fleet.files[number]
    _await(fleet, lambda: fleet.ready_worker(child) is not None, f"{child.name} is ready")
    worker, supervisor = fleet.ready_worker(child) or 0, child.pid
    in_hand = fleet.in_hand(worker)
    if notice:
        since_s = clock.monotonic()
        file.touch()
        _await(fleet, lambda: fleet.has_drained(worker), f"{child.name} has drained")
        say(f"{child.name} drained within {clock.monotonic() - since_s:.1f} s after its notice")
    for pid in [supervisor or 0, *_below(child)]:
        send(pid, signal.SIGKILL)
    file.unlink(missing_ok=True)
    _await(fleet, lambda: child.pid != supervisor, f"{child.name} starts again")
    return in_hand


def _below(child: Child) -> list[int]:
    """Returns the processes of a machine, but for the supervisor of its worker."""
    try:
        found = psutil.Process(child.pid).children(recursive=True) if child.pid else []
    except psutil.NoSuchProcess:
        return []
    return [one.pid for one in found]


def _await(fleet: SpotFleet, is_true: Callable[[], bool], what: str) -> None:
    """Keeps the fleet running until something is true. Raises BenchError."""

    def look() -> bool:
        fleet.poll()
        return is_true()

    wait_until(look, what, _WITHIN_S, _LOOK_S)


def _misbilled(fleet: SpotFleet, traffic: Traffic) -> int:
    """Counts jobs that are billed for other than their items, and the tokens of these, once."""
    wrong = 0
    for job, work in traffic.jobs:
        tokens = ITEM_TOKENS * work.total if work.model == CHAT else 0
        billed = fleet.query(_BILLED, [ids.parse("job", job)])
        wrong += billed != [(work.total, tokens)]
    return wrong
