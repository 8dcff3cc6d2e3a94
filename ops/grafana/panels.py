"""Dashboards as Grafana's JSON: panels in rows of three, and their variables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_ACROSS, _WIDTH, _HEIGHT = 3, 8, 8
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Panel:
    """Panel with lines over time."""

    title: str
    unit: str  #: Grafana's unit id
    lines: Sequence[tuple[str, str]]  #: (expression, legend)
    description: str
    most: float | None = None  #: end of the axis; None: automatic
    red: float | None = None  #: threshold


@dataclass(frozen=True, slots=True)
class Dashboard:
    """Dashboard of several panels."""

    name: str
    title: str
    variables: Sequence[str]  #: keys of _VARIABLES
    panels: Sequence[Panel]

    def as_json(self) -> dict[str, Any]:
        """Returns the dashboard in Grafana's format."""
        return {
            "uid": f"millrace-{self.name}",
            "title": f"Millrace: {self.title}",
            "tags": ["millrace"],
            "schemaVersion": 39,
            "version": 1,
            "editable": True,
            "graphTooltip": 1,
            "time": {"from": "now-3h", "to": "now"},
            "refresh": "30s",
            "links": [_LINKS],
            "templating": {"list": [_DATASOURCE, *(_variable(name) for name in self.variables)]},
            "panels": [_panel(n, panel) for n, panel in enumerate(self.panels)],
        }


_LINKS = {
    "type": "dashboards",
    "tags": ["millrace"],
    "title": "Millrace",
    "asDropdown": True,
    "includeVars": True,
    "keepTime": True,
}
_DATASOURCE = {"name": "datasource", "label": "Data source", "type": "datasource",
               "query": "prometheus"}  # fmt: skip
_VARIABLES = {
    "model": "label_values(millrace_model_target_seconds, model)",
    "pool": "label_values(millrace_workers, pool)",
}


def _variable(name: str) -> dict[str, Any]:
    query = _VARIABLES[name]
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"selected": True, "text": "All", "value": "$__all"},
    }


def _panel(n: int, panel: Panel) -> dict[str, Any]:
    row, column = divmod(n, _ACROSS)
    return {
        "id": n + 1,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _SOURCE,
        "gridPos": {"h": _HEIGHT, "w": _WIDTH, "x": column * _WIDTH, "y": row * _HEIGHT},
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for number, (expression, legend) in enumerate(panel.lines)
        ],
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    shown = "off" if panel.red is None else "dashed"
    return {
        "unit": panel.unit,
        "min": 0,
        **({} if panel.most is None else {"max": panel.most}),
        "thresholds": {"mode": "absolute", "steps": steps},
        "custom": {"lineWidth": 1, "fillOpacity": 8, "thresholdsStyle": {"mode": shown}},
    }
