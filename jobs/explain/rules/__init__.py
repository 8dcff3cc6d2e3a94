"""Rules: functions of the facts that return one finding or none.

Each needs a minimum of evidence, and its thresholds are constants. A healthy system has no
findings.
"""

from collections.abc import Iterator

from jobs.explain.diagnosis import Diagnosis, most_severe_first
from jobs.explain.facts import Facts
from jobs.explain.rules import generation, lanes, load, models, services, sharing, workers


def diagnose(facts: Facts) -> list[Diagnosis]:
    """Returns all findings, most severe first."""
    return most_severe_first(_all(facts))


def _all(facts: Facts) -> Iterator[Diagnosis]:
    for rule in (*services.RULES, *workers.RULES, *sharing.RULES):
        if finding := rule(facts):
            yield finding
    for model in facts.models:
        for model_rule in (*models.RULES, *load.RULES, *lanes.RULES, *generation.RULES):
            if finding := model_rule(model, facts):
                yield finding
