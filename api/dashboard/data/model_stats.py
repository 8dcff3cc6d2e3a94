"""Models as pages show them: every version's figures, from the database and the last minute."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.context import Context
from jobs.models.model import Model
from jobs.store.db import CONNECTION_ERRORS
from jobs.store.queue import workers
from jobs.store.queue.workers import NOWHERE, ModelStatus
from jobs.telemetry.metrics.metrics import EDGES, STAGES
from jobs.telemetry.reports.reports import Reading

_ROWS = "millrace_launch_rows"


@dataclass(frozen=True, slots=True)
class Row:
    """One version. model: None: it is declared no more."""

    key: str
    model: Model | None
    standing: ModelStatus
    target_s: float
    figures: Mapping[str, Any]

    @property
    def ready(self) -> int:
        return self.standing.states.get("ready", 0)

    @property
    def condition(self) -> tuple[str, str]:
        """A word, and what kind of one."""
        states = self.standing.states
        if states.get("ready"):
            return "ready", "good"
        for state, kind in (("failed", "bad"), ("loading", "busy"), ("warming", "busy")):
            if states.get(state):  # type: ignore[call-overload]
                return state, kind
        return ("at rest", "") if states.get("absent") else ("no worker", "warning")


def standing(shared: Context) -> Mapping[str, ModelStatus]:
    """By name@version; nothing where the database is away."""
    try:
        with shared.database.connect() as tx:
            return workers.model_statuses(tx, 2 * shared.settings.lease_s)
    except CONNECTION_ERRORS:
        return {}


def rows(shared: Context, found: Mapping[str, ModelStatus], reading: Reading) -> list[Row]:
    """Those that are declared, and those that are still there. found: how they stand."""
    declared = {model.key: model for model in shared.models}
    keys = (*declared, *sorted(found.keys() - declared.keys()))
    return [row(key, declared.get(key), found.get(key, NOWHERE), reading) for key in keys]


def row(key: str, model: Model | None, standing: ModelStatus, reading: Reading) -> Row:
    target_s = model.target_ms / 1000 if model else 0.0
    return Row(key, model, standing, target_s, figures(reading, key))


def figures(now: Reading, key: str) -> dict[str, Any]:
    """Of its last minute."""
    met = now.increase_by("millrace_call_target_total", "met", model=key)
    units = now.increase("millrace_launch_units_total", model=key)
    padded = now.increase("millrace_launch_padded_units_total", model=key)
    return {
        "calls_s": now.rate("millrace_calls_total", model=key),
        "items_s": now.rate("millrace_items_total", model=key),
        **{
            f"p{q}_s": now.quantile("millrace_call_seconds", q / 100, model=key)
            for q in (50, 95, 99)
        },
        "missed": 1 - met.get("true", 0.0) / sum(met.values()) if met else None,
        "queue_calls": now.gauge("millrace_queue_calls", model=key),
        "queue_items": now.gauge("millrace_queue_items", model=key),
        "oldest_s": now.gauge("millrace_queue_oldest_seconds", model=key),
        "drain_s": now.gauge("millrace_predicted_drain_seconds", model=key),
        "launches_s": now.rate("millrace_launches_total", model=key),
        "rows": now.mean(_ROWS, model=key),
        "fill": now.mean("millrace_launch_fill_ratio", model=key),
        "padding": 1 - units / padded if padded else None,
        "launch_s": now.mean("millrace_launch_seconds", model=key),
        "prediction": now.quantile("millrace_launch_prediction_ratio", 0.5, model=key),
        "lanes": now.gauge("millrace_lanes_waiting", model=key),
    }


def stages(reading: Reading, **labels: str) -> dict[str, float]:
    """Where the time of a call went on average, in ms, by stage."""
    means = {
        stage: reading.mean("millrace_call_stage_seconds", stage=stage, **labels)
        for stage in STAGES
    }
    return {stage: 1000 * mean for stage, mean in means.items() if mean is not None}


def launch_sizes(reading: Reading, **labels: str) -> dict[str, float]:
    """How many launches had how many entries, by the upper end of what is counted together."""
    found, low = {}, 0
    for top in EDGES[_ROWS]:
        name = f"{top:.0f}" if top - low <= 1 else f"{low + 1}–{top:.0f}"
        found[name] = reading.increase(f"{_ROWS}_bucket", le=f"{top:.1f}", **labels)
        low = int(top)
    if rest := reading.increase(f"{_ROWS}_bucket", le="+Inf", **labels):
        found[f"{low + 1}+"] = rest
    return trimmed(found)


def trimmed(counts: dict[str, float]) -> dict[str, float]:
    """Without the empty ones after the last that isn't."""
    names = list(counts)
    while len(names) > 4 and not counts[names[-1]]:
        names.pop()
    return {name: counts[name] for name in names}


def curves(reading: Reading, key: str) -> dict[str, list[tuple[float, float]]]:
    """How long a launch of so many rows is predicted to take, ms, by bucket: as the worker that
    reports first has measured it."""
    for report in reading.of("worker").reports:
        profile = report.about.get("models", {}).get(key, {}).get("profile", {})
        if profile:
            return {
                f"up to {bucket}" if bucket != "0" else "all lengths": [
                    (1.0, times["one_ms"]), (float(times["full_rows"]), times["full_ms"]),
                ]
                for bucket, times in sorted(profile.items(), key=lambda pair: int(pair[0]))
            }  # fmt: skip
    return {}
