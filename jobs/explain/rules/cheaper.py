"""Rule on items that wait for cheaper workers."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent


def cheaper_workers(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds items that workers with room leave to cheaper ones."""
    its = model.cheaper
    if not its.left_by or not model.queued_items:
        return None
    dear, cheap = _named(its.left_by), _named(its.left_to)
    return Diagnosis(
        "cheaper_workers",
        "info",
        model.about,
        f"{count(model.queued_items, 'item')} of {model.key} wait for {cheap}, where an item costs "
        f"{percent(its.share)} of what it does in {dear}: about {duration(its.drain_s)} of work",
        f"none is needed: {dear} takes them once the others can't be done in time, or are gone; "
        "MILLRACE_CHEAPER_S says how long jobs may take for that (0: no worker leaves any), and "
        "interactive jobs don't wait",
        {"items": model.queued_items, "cost_share": its.share, "drain_s": its.drain_s},
    )


def _named(pools: tuple[str, ...]) -> str:
    return f"{'pool' if len(pools) == 1 else 'pools'} {' and '.join(pools)}"


RULES = (cheaper_workers,)
