"""Rules on adapters."""

from jobs.explain.diagnosis import Diagnosis
from jobs.explain.facts import Facts, ModelFacts
from jobs.explain.formatting import count, duration, percent
from jobs.explain.rules.thresholds import LAUNCHES

LOADING = 0.05
"""Share of the time of a worker that loads take. An adapter stays for five times its load at least,
so that one slot can't exceed a sixth."""


def adapter_thrash(model: ModelFacts, facts: Facts) -> Diagnosis | None:
    """Finds adapters that are loaded over and over because there are too few slots."""
    its = model.adapters
    share = its.loads * its.load_s / max(1e-9, facts.window_s * max(1, model.workers))
    if its.evictions < LAUNCHES or share < LOADING:
        return None
    return Diagnosis(
        "adapter_thrash",
        "warning",
        model.about,
        f"{count(its.evictions, 'adapter')} of {model.key} left their slot to another in the last "
        f"minute: more are in use than the {count(its.slots, 'slot')} of a worker hold; loads of "
        f"{duration(its.load_s)} take {percent(share)} of its time",
        "a larger adapter_slots in the model's options (millrace model check --plan tells the "
        "memory); pinned = true for the adapters with most requests; more workers",
        {
            "evictions": its.evictions,
            "loads": its.loads,
            "load_s": its.load_s,
            "slots": its.slots,
            "loading": share,
        },
    )


RULES = (adapter_thrash,)
