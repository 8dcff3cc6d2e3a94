"""Models that need another worker, by their load and who has them."""

from typing import Any

from jobs.scaling.advice.replicas import candidates, needs_another, replicas
from jobs.scaling.measure import ModelLoad, Queue
from jobs.telemetry.reports.reports import Report, ReportSet
from jobs.telemetry.reports.window import WindowDelta
from tests.support.cases import each


def load(**figures: Any) -> ModelLoad:
    quiet = {
        "key": "m@1", "answered": 100.0, "refused": 0.0, "judged": 100.0, "late": 0.0,
        "offered": 0.3, "items": 0.0, "backlog_s": 0.0, "queue": Queue(), "target_s": 0.1,
        "known": True,
    }  # fmt: skip
    return ModelLoad(**{**quiet, **figures})


def test_a_model_needs_another_worker_by_its_calls_or_items() -> None:
    cases = [
        ({}, False),
        ({"offered": 0.84}, False),
        ({"offered": 0.86}, True),
        ({"offered": 0.6, "refused": 2.0}, True),
        ({"offered": 0.6, "late": 6.0}, True),
        ({"offered": 0.6, "refused": 0.5, "late": 4.0}, False),
        ({"offered": 0.4, "refused": 50.0, "late": 50.0}, False),  # for another reason
        ({"backlog_s": 83.0}, False),  # in what calls leave
        ({"backlog_s": 85.0}, True),
        ({"offered": 3.0, "backlog_s": 1.0}, True),
    ]
    for (figures, needs), case in each(cases):
        with case:
            assert needs_another(load(**figures), 1) == needs


def worker(name: str, state: str = "ready", **models: str) -> Report:
    details = {"state": state, "models": {f"{key}@1": {"state": s} for key, s in models.items()}}
    return Report(name, "worker", 0.0, WindowDelta(60, {}, {}), details)


def test_one_is_added_at_a_time_where_a_worker_could_load_it() -> None:
    cases = [
        ((worker("1", m="ready"), worker("2", m="absent")), {"m@1": 2}),
        ((worker("1", m="ready"), worker("2", m="ready"), worker("3", m="absent")), {"m@1": 3}),
        ((worker("1", m="ready"), worker("2", m="loading"), worker("3", m="absent")), {}),
        ((worker("1", m="ready"), worker("2", m="failed")), {}),
        ((worker("1", m="absent"), worker("2", m="absent")), {}),  # a request brings the first
        ((worker("1", m="ready"), worker("2", "draining", m="absent")), {}),
        ((), {}),
    ]
    for (reports, found), case in each(cases):
        with case:
            ready = candidates(ReportSet(reports))
            assert replicas([load(offered=5.0)], ready) == found
            assert replicas([load()], ready) == {}
