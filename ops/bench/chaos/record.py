"""Figures of a run as one JSON line, and where asked the page and the picture of it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jobs import clock
from ops.bench.chaos.faults.schedule import SHARES
from ops.bench.chaos.faults.targets import Proof
from ops.bench.chaos.load import Load
from ops.bench.chaos.plot import draw
from ops.bench.chaos.verify import Findings
from ops.bench.results.report import Report, machine

_DOCS = Path(__file__).parents[2] / "docs"
_PAGE, _PICTURE = _DOCS / "reliability.md", _DOCS / "bench-chaos.svg"
_BEGIN, _END = "<!-- the recorded run -->", "<!-- end of the recorded run -->"
_ZERO = ("lost", "duplicated", "out_of_order", "wrong", "innocent_failed", "changed")
_MANY = 1000  # faults, from which on there must be a hundred of each kind
_REDIS = ("redis_killed", "redis_flushed")
_HUNDREDS = (
    *("worker_killed", "worker_stopped", "worker_terminated", "redis_lost"),
    *("postgres_stopped", "api_killed", "keeper_killed"),
)
_RECOVERED_WITHIN_S = 10
_SHOWN = (
    *("jobs", "items", "results_read_while_running", *_ZERO, "invariant_violations"),
    *("slices_recovered", "slices_unrecovered"),
    *("recovery_p50_s", "recovery_p99_s", "recovery_max_s", "calls", "calls_answered"),
)
#: By fault: (its name, its proof in the ledger).
_WORDS = {
    "worker_killed": ("SIGKILL of a worker", "wait status, as its supervisor saw it"),
    "worker_stopped": (
        "SIGSTOP of a worker past its lease, then SIGCONT (the zombie)",
        "state T in /proc, seconds stopped, its leases taken by other epochs",
    ),
    "worker_terminated": ("SIGTERM of a worker", "wait status, as its supervisor saw it"),
    "api_killed": ("SIGKILL of an api", "wait status"),
    "keeper_killed": ("SIGKILL of a keeper", "wait status"),
    "postgres_stopped": (
        "PostgreSQL stopped `immediate`, and started",
        "wait status, pg_postmaster_start_time before and after",
    ),
    "redis_killed": ("Redis killed, an empty one started", "wait status, run_id before and after"),
    "redis_flushed": ("Redis flushed", "keys before; a canary among them is gone"),
    "nudge_dropped": ("a nudge dropped", "the id of the message that was taken"),
    "nudge_doubled": ("a nudge doubled", "the id of the message that was sent twice"),
    "upload_broken_off": ("an upload broken off", "bytes sent; the tag of no job"),
    "stream_broken_off": (
        "a stream broken off by its client, which resumes",
        "seqs read, of those that the stream was about to send",
    ),
}


@dataclass
class History:
    """Events in seconds since the first fault was due."""

    fired: list[tuple[float, str, Proof]] = field(default_factory=list)  #: (s, kind, proof)
    missed: int = 0
    done: list[tuple[float, int]] = field(default_factory=list)  #: (s, results so far)


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a run leaves."""

    seed: int
    minutes: float
    planned: int  #: faults
    durability: dict[str, str]  #: settings of PostgreSQL
    history: History
    load: Load
    found: Findings


def finish(run: Run, recorded: bool) -> None:
    """Prints the JSON line. recorded: writes the page and the picture, too."""
    figures = _figures(run)
    thresholds = [f"{name} <= 0" for name in (*_ZERO, "invariant_violations")]
    if "recovery_p99_s" in figures:
        thresholds += ["slices_unrecovered <= 0", f"recovery_p99_s <= {_RECOVERED_WITHIN_S}"]
    if run.planned >= _MANY:
        thresholds += [f"faults >= {_MANY}", *(f"faults_{kind} >= 100" for kind in _HUNDREDS)]
    report = Report("chaos", thresholds)
    report.add(**figures)
    if recorded:
        before, _, rest = _PAGE.read_text().partition(_BEGIN)
        table, after = "\n".join(_lines(run, figures)), rest.partition(_END)[2]
        _PAGE.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{after}")
        faults = [(at_s, kind) for at_s, kind, _ in run.history.fired]
        _PICTURE.write_text(draw(run.history.done, faults))
    report.finish()


def _figures(run: Run) -> dict[str, float]:
    found, fired = run.found, run.history.fired
    recovery_s = sorted(seconds for _, _, proof in fired for seconds in proof.get("recovery_s", ()))
    figures: dict[str, float] = {
        "faults": len(fired),
        "missed": run.history.missed,
        **{f"faults_{kind}": count for kind, count in _by_kind(run).items()},
        "zombies_woken": sum(bool(proof.get("woken")) for _, _, proof in fired),
        "jobs": found.jobs,
        "items": found.items,
        "results_read_while_running": found.read_while_running,
        "calls_answered": run.load.calls_answered,
        "calls": run.load.calls,
        **{name: getattr(found, name) for name in _ZERO},
        "invariant_violations": found.violations,
    }
    if recovery_s:
        figures |= {
            "slices_recovered": len(recovery_s),
            "slices_unrecovered": sum(proof.get("unrecovered", 0) for _, _, proof in fired),
            "recovery_p50_s": _quantile(recovery_s, 0.5),
            "recovery_p99_s": _quantile(recovery_s, 0.99),
            "recovery_max_s": recovery_s[-1],
        }
    return figures


def _by_kind(run: Run) -> dict[str, int]:
    fired = Counter(kind for _, kind, _ in run.history.fired)
    return {kind: fired[kind] for kind in SHARES} | {"redis_lost": sum(fired[k] for k in _REDIS)}


def _quantile(values: Sequence[float], share: float) -> float:
    """Quantile by the nearest rank."""
    return values[min(len(values) - 1, int(share * len(values)))]


def _lines(run: Run, figures: dict[str, float]) -> list[str]:
    """Lines of the page."""
    at, kinds = machine(), _by_kind(run)
    settings = ", ".join(f"{name} {value}" for name, value in run.durability.items())
    shown = {name: figures[name] for name in _SHOWN if name in figures}
    return [
        f"`millrace bench chaos --seed {run.seed} --minutes {run.minutes:g} "
        f"--faults {run.planned} --record`, {clock.now():%Y-%m-%d}, on {at['cores']} cores "
        f"({at['cpu']}), {at['memory_gib']} GiB. {settings}.",
        *("", "![results and faults over time](bench-chaos.svg)", ""),
        *("| fault | times | proof in the ledger |", "|---|---|---|"),
        *(f"| {_WORDS[kind][0]} | {kinds[kind]} | {_WORDS[kind][1]} |" for kind in SHARES),
        *(f"| all | {len(run.history.fired)} | |", "", "| | |", "|---|---|"),
        *(f"| {name.replace('_', ' ')} | {_show(value)} |" for name, value in shown.items()),
    ]


def _show(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.2f}"
