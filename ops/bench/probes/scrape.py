"""Samples of a platform's metrics."""

import httpx
from prometheus_client.parser import text_string_to_metric_families

from ops.supervisor.platform import Platform


def total(platform: Platform, name: str, key: str = "", **labels: str) -> float:
    """Sums a metric over all processes of a platform, of the series that have these labels.

    key: API key for the api's own metrics, where keys exist.
    """
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    found = 0.0
    for url in platform.metrics:
        response = httpx.get(url, headers=headers).raise_for_status()
        for family in text_string_to_metric_families(response.text):
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    found += sample.value
    return found
