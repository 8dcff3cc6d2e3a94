"""The rules. Each is a function of one thing's facts, and of all, that finds one cause or none.

Thresholds are constants with their reasons; none speaks without a minimum of evidence, and a system
that does what it should gets no word from any.
"""

from collections.abc import Iterator

from jobs.explain.diagnosis import Diagnosis, most_severe_first
from jobs.explain.facts import Facts
from jobs.explain.rules import lanes, load, models, parts, sharing, workers


def diagnose(facts: Facts) -> list[Diagnosis]:
    """Every cause that the facts show, the most severe first."""
    return most_severe_first(_all(facts))


def _all(facts: Facts) -> Iterator[Diagnosis]:
    for rule in (*parts.RULES, *workers.RULES, *sharing.RULES):
        if found := rule(facts):
            yield found
    for model in facts.models:
        for judge in (*models.RULES, *load.RULES, *lanes.RULES):
            if found := judge(model, facts):
                yield found
