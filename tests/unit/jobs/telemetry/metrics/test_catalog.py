"""The page of metrics is what the metrics are."""

import re

from jobs.telemetry.metrics import catalog
from jobs.telemetry.metrics.metrics import SECTIONS
from tests.support.cases import each

ALL = [metric for found in SECTIONS.values() for metric in found]


def test_the_page_is_current() -> None:
    assert catalog.page() == catalog.PAGE.read_text(), (
        "run: python -m jobs.telemetry.metrics.catalog"
    )


def test_a_metric_is_named_by_its_base_unit_and_explained() -> None:
    for metric, case in each(ALL, name=catalog.exposed_name):
        with case:
            name = catalog.exposed_name(metric)
            assert re.fullmatch("millrace(_[a-z]+)+", name)
            assert not re.search("_(ms|mb|kb|percent|us|minutes)(_|$)", name)
            assert all(family.documentation for family in metric.describe())
