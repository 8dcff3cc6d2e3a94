"""Figures of a run as one JSON line, and where asked the page and the picture of it."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jobs import clock
from ops.bench.chaos.clients.health_probe import HealthProbe
from ops.bench.chaos.clients.load import Load
from ops.bench.chaos.clients.streams import StreamTally
from ops.bench.chaos.faults.table import FAULTS
from ops.bench.chaos.faults.targets import Proof
from ops.bench.chaos.verify import ZERO, Findings
from ops.bench.results.report import Report, machine

_PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "reliability.md"
_BEGIN, _END = "<!-- the recorded run -->", "<!-- end of the recorded run -->"
_MANY = 1000  # faults, from which on there must be a hundred of each kind
_REDIS = ("redis_killed", "redis_flushed")
_HUNDREDS = (
    *("worker_killed", "worker_stopped", "worker_terminated", "redis_lost"),
    *("postgres_stopped", "api_killed", "keeper_killed"),
)
_RECOVERED_WITHIN_S = 10
_STREAMS_ZERO = ("stream_tokens_lost", "stream_tokens_repeated", "streams_wrong")
_SHOWN = (
    *("jobs", "items", "results_read_while_running", *ZERO, "invariant_violations"),
    *("slices_recovered", "slices_unrecovered"),
    *("recovery_p50_s", "recovery_p99_s", "recovery_max_s", "calls", "calls_answered"),
    *("first_call_p99_s", "first_job_p99_s", "livez_p99_s", "readyz_p99_s"),
    *("streams", "streams_resumed", "streams_ended_with_error", "streams_lost_with_redis"),
    *_STREAMS_ZERO,
)


@dataclass
class History:
    """Events in seconds since the first fault was due."""

    fired: list[tuple[float, str, Proof]] = field(default_factory=list)  #: (s, kind, proof)
    missed: int = 0
    over_s: list[float] = field(default_factory=list)  #: ends of faults, on the process's clock
    done: list[tuple[float, int]] = field(default_factory=list)  #: (s, results so far)


@dataclass(frozen=True, slots=True)
class Run:
    """Everything that a run leaves."""

    seed: int
    minutes: float
    planned: int  #: faults
    left_out: Sequence[str]  #: kinds of faults that this machine doesn't allow
    durability: dict[str, str]  #: settings of PostgreSQL
    history: History
    load: Load
    found: Findings
    health: HealthProbe


def finish(run: Run, recorded: bool) -> None:
    """Prints the JSON line. recorded: writes the page and the picture, too."""
    figures = _figures(run)
    thresholds = [f"{name} <= 0" for name in (*ZERO, *_STREAMS_ZERO, "invariant_violations")]
    if "recovery_p99_s" in figures:
        thresholds += ["slices_unrecovered <= 0", f"recovery_p99_s <= {_RECOVERED_WITHIN_S}"]
    if run.planned >= _MANY:
        thresholds += [f"faults >= {_MANY}", *(f"faults_{kind} >= 100" for kind in _HUNDREDS)]
    report = Report("chaos", thresholds)
    report.add(**figures)
    if recorded:
        from ops.bench.results.plots import save_picture  # CI doesn't install matplotlib

        before, _, rest = _PAGE.read_text().partition(_BEGIN)
        table, after = "\n".join(_lines(run, figures)), rest.partition(_END)[2]
        _PAGE.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{after}")
        faults = [(at_s, kind) for at_s, kind, _ in run.history.fired]
        save_picture("chaos", draw(run.history.done, faults))
    report.finish()


def _figures(run: Run) -> dict[str, float]:
    found, fired = run.found, run.history.fired
    recovery_s = sorted(seconds for _, _, proof in fired for seconds in proof.get("recovery_s", ()))
    kinds = Counter(kind for _, kind, _ in fired)
    by_kind = {kind: kinds[kind] for kind in FAULTS}
    figures: dict[str, float] = {
        "faults": len(fired),
        "missed": run.history.missed,
        "kinds_left_out": len(run.left_out),
        **{f"faults_{kind}": count for kind, count in by_kind.items()},
        "faults_redis_lost": sum(by_kind[kind] for kind in _REDIS),
        "zombies_woken": sum(bool(proof.get("woken")) for _, _, proof in fired),
        "jobs": found.jobs,
        "items": found.items,
        "results_read_while_running": found.read_while_running,
        "calls_answered": run.load.calls_answered,
        "calls": run.load.calls,
        **_first_after("call", run.history.over_s, run.load.answered_s),
        **_first_after("job", run.history.over_s, run.load.ended_s),
        **_health_figures(run.health),
        **_stream_figures(run.load.streams.tally),
        **{name: getattr(found, name) for name in ZERO},
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


def _first_after(what: str, ends_s: Sequence[float], times_s: Sequence[float]) -> dict[str, float]:
    """Returns how long it took from the end of each fault to the next of these times. There is none
    after the last ones, since clients stop: the checks of what they followed are for those."""
    times_s = sorted(times_s)
    after = [(bisect_left(times_s, end_s), end_s) for end_s in ends_s]
    waited_s = sorted(times_s[n] - end_s for n, end_s in after if n < len(times_s))
    if not waited_s:
        return {}
    return {f"first_{what}_p99_s": _quantile(waited_s, 0.99), f"first_{what}_max_s": waited_s[-1]}


def _health_figures(health: HealthProbe) -> dict[str, float]:
    figures = dict[str, float]()
    for route, took_s in health.took_s.items():
        ordered_s = sorted(took_s)
        figures |= {f"{route}_p99_s": _quantile(ordered_s, 0.99), f"{route}_max_s": ordered_s[-1]}
    return figures


def _stream_figures(tally: StreamTally) -> dict[str, float]:
    return {
        "streams": tally.streams,
        "streams_resumed": tally.resumed,
        "streams_ended_with_error": tally.errors.total(),
        "streams_lost_with_redis": tally.lost_with_redis,
        "stream_tokens": tally.tokens,
        "stream_tokens_lost": tally.lost,
        "stream_tokens_repeated": tally.repeated,
        "streams_wrong": tally.wrong,
    }


def _quantile(values: Sequence[float], share: float) -> float:
    """Quantile by the nearest rank."""
    return values[min(len(values) - 1, int(share * len(values)))]


def _lines(run: Run, figures: dict[str, float]) -> list[str]:
    """Lines of the page."""
    at = machine()
    settings = ", ".join(f"{name} {value}" for name, value in run.durability.items())
    shown = {name: figures[name] for name in _SHOWN if name in figures}
    faults = (
        f"| {fault.name} | {figures[f'faults_{kind}']} | {fault.proof} |"
        for kind, fault in FAULTS.items()
    )
    return [
        f"`millrace bench chaos --seed {run.seed} --minutes {run.minutes:g} "
        f"--faults {run.planned} --record`, {clock.now():%Y-%m-%d}, on {at['cores']} cores "
        f"({at['cpu']}), {at['memory_gib']} GiB. {settings}.",
        *("", "![results and faults over time](../pictures/bench-chaos.svg)", ""),
        *("| fault | times | proof in the ledger |", "|---|---|---|", *faults),
        *(f"| all | {figures['faults']} | |", "", "| | |", "|---|---|"),
        *(f"| {name.replace('_', ' ')} | {_show(value)} |" for name, value in shown.items()),
    ]


def _show(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:.2f}"


def draw(done: Sequence[tuple[float, int]], faults: Sequence[tuple[float, str]]) -> Any:
    """Results over time above, a mark for each fault below.

    done: (seconds, results so far); faults: (seconds, kind).
    """
    from ops.bench.results.plots import DARK, TARGET_COLOUR, label, picture

    figure, (curve, marks) = picture(1, 9, 4.6, rows=2)
    curve.plot(*zip(*done, strict=True), color=DARK)
    most = max(results for _, results in done)
    label(curve, f"{most:,} results under {len(faults):,} faults")
    kinds = list(FAULTS)
    times = [[at_s for at_s, found in faults if found == kind] for kind in kinds]
    marks.eventplot(times, colors=TARGET_COLOUR, linelengths=0.6)
    marks.set_yticks(range(len(kinds)), [kind.replace("_", " ") for kind in kinds])
    marks.invert_yaxis()
    marks.sharex(curve)
    label(marks, x="s")
    return figure
