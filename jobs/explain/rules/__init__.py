"""Rules: functions of the facts that return one finding or none.

Each needs a minimum of evidence, and its thresholds are constants. A healthy system has no
findings.
"""

from collections.abc import Iterator

from jobs.explain.diagnosis import Diagnosis, most_severe_first
from jobs.explain.facts import Facts
from jobs.explain.rules import (
    adapters,
    cheaper,
    generation,
    gpus,
    lanes,
    load,
    models,
    preparation,
    services,
    sharing,
    workers,
)

_OF_PREPARATIONS = (models.worker_drained, models.model_failed, models.model_loading)


def diagnose(facts: Facts) -> list[Diagnosis]:
    """Returns all findings, most severe first."""
    return most_severe_first(_all(facts))


def _all(facts: Facts) -> Iterator[Diagnosis]:
    for rule in (*services.RULES, *workers.RULES, *gpus.RULES, *sharing.RULES):
        if finding := rule(facts):
            yield finding
    for model in facts.models:
        its = (
            *models.RULES, *load.RULES, *lanes.RULES, *generation.RULES, *adapters.RULES,
            *preparation.RULES, *cheaper.RULES, *gpus.OF_MODELS,
        )  # fmt: skip
        for model_rule in _OF_PREPARATIONS if preparation.is_preparation(model) else its:
            if finding := model_rule(model, facts):
                yield finding
