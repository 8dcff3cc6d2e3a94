"""Rules on one model: its workers, loads and failures."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import MODEL_FAULTS, Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent
from jobs.store.queue.workers import LOADING_STATES

FAULTY_SHARE = 0.05
LEAST_FAULTS = 5


def no_worker(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a backlog, or rejected calls, of a model that no worker has or loads."""
    states = model.observed.states
    refused = model.calls.outcomes.get("no_worker", 0.0)
    if states.get("ready") or model.workers or any(states.get(state) for state in LOADING_STATES):
        return None
    if states.get("failed") or not (model.has_backlog or refused) or _only_drained(model):
        return None
    return Diagnosis(
        "no_worker",
        "critical",
        model.about,
        f"no worker is ready for {model.key}: {_waiting(model)}",
        "start a worker of its pool (`millrace worker`), and check the logs of those that should "
        "run",
        {
            "queued_items": model.queued_items,
            "queued_calls": model.queued_calls,
            "refused": refused,
        },
    )


def worker_drained(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a model of which all workers were drained by an operator."""
    suffers = model.has_backlog or model.calls.outcomes.get("no_worker", 0.0) > 0
    if not _only_drained(model) or not (suffers or model.observed.states.get("draining")):
        return None
    drained = model.observed.drained
    return Diagnosis(
        "worker_drained",
        "critical" if suffers else "warning",
        model.about,
        f"no worker takes work of {model.key}: an operator drained "
        f"{count(len(drained), 'worker')} that {'has' if len(drained) == 1 else 'have'} it (id "
        f"{', '.join(map(str, drained))}), and no other has; {_waiting(model)}",
        f"`millrace worker resume {drained[0]}`, or start another worker of its pool",
        {"drained": float(len(drained)), "worker": float(drained[0])},
    )


def _only_drained(model: ModelFacts) -> bool:
    """Returns True if all workers that know the model were drained by an operator."""
    seen = model.observed
    return bool(seen.drained) and sum(seen.states.values()) <= len(seen.drained)


def _waiting(model: ModelFacts) -> str:
    refused = model.calls.outcomes.get("no_worker", 0.0)
    waiting = count(model.queued_items, "item") + " and " + count(model.queued_calls, "call")
    return f"{waiting} wait, {refused:.0f} calls were refused in the last minute"


def model_failed(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a model that failed to load."""
    states = model.observed.states
    failed = states.get("failed", 0)
    if not failed:
        return None
    ready = states.get("ready", 0)
    return Diagnosis(
        "model_failed",
        "warning" if ready else "critical",
        model.about,
        f"{model.key} can't be loaded in {count(failed, 'worker')}, and is ready in {ready}: "
        f"{model.observed.error or 'no reason known'}",
        "fix the cause and restart those workers; `millrace model check` tests an entry without a "
        "platform",
        {"failed": float(failed), "ready": float(ready), "error": model.observed.error},
    )


def model_loading(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds a backlog, or rejected calls, of a model that is still being loaded."""
    states = model.observed.states
    loading = sum(states.get(state, 0) for state in LOADING_STATES)
    refused = model.calls.outcomes.get("no_worker", 0.0)
    if states.get("ready") or not loading or not (model.has_backlog or refused):
        return None
    steps = ", ".join(state for state in LOADING_STATES if states.get(state))
    rejected = f"; {refused:.0f} calls were refused in the last minute" if refused else ""
    return Diagnosis(
        "model_loading",
        "warning" if refused else "info",
        model.about,
        f"{model.key} is being loaded by {count(loading, 'worker')} ({steps}); no other worker "
        f"has it{rejected}",
        "wait; if loads take too long, keep the model in memory (MILLRACE_MEMORY_MB)",
        {"loading": float(loading), "queued_items": model.queued_items, "refused": refused},
    )


def model_fails(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds calls or items that fail through the model's fault, not their content."""
    calls = sum(model.calls.outcomes.get(code, 0.0) for code in MODEL_FAULTS)
    items = sum(model.errors.get(code, 0.0) for code in MODEL_FAULTS)
    total = model.calls.count + sum(model.items.values())
    failed = calls + items
    if failed < LEAST_FAULTS or failed < FAULTY_SHARE * total:
        return None
    codes = {
        code: model.calls.outcomes.get(code, 0.0) + model.errors.get(code, 0.0)
        for code in MODEL_FAULTS
    }
    most = max(codes, key=lambda code: codes[code])
    return Diagnosis(
        "model_fails",
        "warning",
        model.about,
        f"{percent(min(1.0, failed / max(1.0, total)))} of the inputs of {model.key} failed "
        f"({calls:.0f} calls, {items:.0f} items), most as {most}",
        "the errors of items and the worker's log have the messages; `millrace model check` runs "
        "it alone",
        {"calls": calls, "items": items, "code": most},
    )


def stuck_jobs(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds jobs with runnable work and no progress although a worker is ready."""
    if not model.stuck:
        return None
    return Diagnosis(
        "stuck_jobs",
        "critical",
        model.about,
        f"{count(model.stuck, 'job')} of {model.key} made no progress for ten minutes although a "
        f"worker was ready; {count(model.queued_items, 'item')} wait, which should take "
        f"{duration(model.drain_s)}",
        "`millrace why JOB` says what such a job waits for; then check the keeper's log and the "
        "broker: a worker claims when it is nudged",
        {"jobs": model.stuck, "queued_items": model.queued_items},
    )


RULES = (no_worker, worker_drained, model_failed, model_loading, model_fails, stuck_jobs)
