"""The page of metrics is what the metrics are."""

import re

import pytest

from jobs.telemetry.metrics import catalog
from jobs.telemetry.metrics.metrics import SECTIONS, Metric

ALL = [metric for found in SECTIONS.values() for metric in found]


def test_the_page_is_current() -> None:
    assert catalog.page() == catalog.PAGE.read_text(), (
        "run: python -m jobs.telemetry.metrics.catalog"
    )


@pytest.mark.parametrize("metric", ALL, ids=catalog.exposed_name)
def test_a_metric_is_named_by_its_base_unit(metric: Metric) -> None:
    name = catalog.exposed_name(metric)
    assert re.fullmatch("millrace(_[a-z]+)+", name)
    assert not re.search("_(ms|mb|kb|percent|us|minutes)(_|$)", name)
    assert all(family.documentation for family in metric.describe())
