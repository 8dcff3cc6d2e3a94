"""Rules of one model: whether anybody serves it, and whether it works."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import MODEL_FAULTS, Facts, ModelFacts
from jobs.explain.words import count, percent, span

FAULTY_SHARE = 0.05
LEAST_FAULTS = 5
_COMING = ("loading", "warming")
_WANTED = 1
"""A call that found no worker, or anything that waits: somebody asks for it."""


def no_worker(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Something waits, and no worker has the model or is about to."""
    states = model.standing.states
    refused = model.calls.outcomes.get("no_worker", 0.0)
    if states.get("ready") or model.workers or any(states.get(state) for state in _COMING):
        return None
    if states.get("failed") or not (model.waits or refused >= _WANTED):
        return None
    waiting = count(model.queued_items, "item") + " and " + count(model.queued_calls, "call")
    return Diagnosis(
        "no_worker",
        "critical",
        model.about,
        f"no worker is ready for {model.key}: {waiting} wait, {refused:.0f} calls were refused in "
        "the last minute",
        "start a worker of its pool (`millrace worker`), and look at the logs of those that should "
        "be there",
        {
            "queued_items": model.queued_items,
            "queued_calls": model.queued_calls,
            "refused": refused,
        },
    )


def model_failed(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """It can't be loaded somewhere."""
    states = model.standing.states
    failed = states.get("failed", 0)
    if not failed:
        return None
    ready = states.get("ready", 0)
    return Diagnosis(
        "model_failed",
        "warning" if ready else "critical",
        model.about,
        f"{model.key} can't be loaded in {count(failed, 'worker')}, and is ready in {ready}: "
        f"{model.standing.error or 'no reason was told'}",
        "mend what it says and start those workers again; `millrace model check` tries an entry "
        "out without a platform",
        {"failed": float(failed), "ready": float(ready), "error": model.standing.error},
    )


def model_loading(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """What waits, or is refused, would be done if a model were loaded."""
    states = model.standing.states
    coming = sum(states.get(state, 0) for state in _COMING)
    refused = model.calls.outcomes.get("no_worker", 0.0)
    if states.get("ready") or not coming or not (model.waits or refused >= _WANTED):
        return None
    told = f"; {refused:.0f} calls were refused in the last minute" if refused else ""
    return Diagnosis(
        "model_loading",
        "warning" if refused else "info",
        model.about,
        f"{model.key} is being loaded by {count(coming, 'worker')}; nobody else has it{told}",
        "it is a matter of time; keep a worker warm (MILLRACE_MEMORY_MB) where that is too long",
        {"loading": float(coming), "queued_items": model.queued_items, "refused": refused},
    )


def model_fails(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Its calls or items fail, and it isn't for what is in them."""
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
        f"{percent(min(1.0, failed / max(1.0, total)))} of what {model.key} was given failed "
        f"({calls:.0f} calls, {items:.0f} items), most as {most}",
        "the errors of items and the worker's log have its words; `millrace model check` runs it "
        "by itself",
        {"calls": calls, "items": items, "code": most},
    )


def stuck_jobs(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Jobs have work to do, a worker is ready, and nothing ends."""
    if not model.stuck:
        return None
    return Diagnosis(
        "stuck_jobs",
        "critical",
        model.about,
        f"{count(model.stuck, 'job')} of {model.key} had work to do for ten minutes, of which "
        f"nothing ended while a worker was ready; {count(model.queued_items, 'item')} wait, which "
        f"should take {span(model.drain_s)}",
        "`millrace why JOB` says what such a job waits for; then the keeper's log, and the broker: "
        "a worker claims when it is nudged",
        {"jobs": model.stuck, "queued_items": model.queued_items},
    )


RULES = (no_worker, model_failed, model_loading, model_fails, stuck_jobs)
