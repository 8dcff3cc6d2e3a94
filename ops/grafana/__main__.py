"""Command that writes the dashboards."""

import json
from pathlib import Path

from ops.grafana.dashboards import DASHBOARDS
from ops.grafana.panels import Dashboard

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana" / "dashboards"


def text_of(dashboard: Dashboard) -> str:
    """Returns the dashboard as JSON text."""
    return json.dumps(dashboard.as_json(), indent=2) + "\n"


if __name__ == "__main__":
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(text_of(dashboard))
