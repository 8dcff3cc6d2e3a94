"""Dashboards: as the generator makes them, of metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.grafana.__main__ import FOLDER, text_of
from ops.grafana.dashboards import DASHBOARDS
from tests.support.cases import each
from tests.unit.ops.deploy.kit import DEPLOY, TARGET, left_by, load, promtool, series, wrong

PANELS = [(board, panel) for board in DASHBOARDS for panel in board.as_json()["panels"]]


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


def test_the_files_are_what_the_generator_makes_with_the_variables_that_panels_use() -> None:
    names = {f"{board.name}.json" for board in DASHBOARDS}
    assert {path.name for path in FOLDER.glob("*.json")} == names
    for board, case in each(DASHBOARDS, name=lambda board: board.name):
        with case:
            assert (FOLDER / f"{board.name}.json").read_text() == text_of(board)
            made = board.as_json()
            used = set(re.findall(r"\$(?!__|\{)(\w+)", json.dumps(made["panels"])))
            assert used == set(board.variables)
            queries = [one["definition"].split("(")[1] for one in made["templating"]["list"][1:]]
            assert [fault for query in queries for fault in wrong(query)] == []


def test_a_panel_asks_for_what_there_is_and_names_labels_that_are_left() -> None:
    for (_, panel), case in each(PANELS, name=lambda one: f"{one[0].name}: {one[1]['title']}"):
        with case:
            assert [fault for text in expressions(panel) for fault in wrong(text)] == []
            assert panel["description"]
            for target in panel["targets"]:
                named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                assert named <= left_by(target["expr"], series()) | TARGET


@pytest.mark.heavy
def test_prometheus_can_read_every_expression(tmp_path: Path) -> None:
    texts = [text for _, panel in PANELS for text in expressions(panel)]
    written = [
        {"record": f"panel:{n}", "expr": re.sub(r"\$__rate_interval", "5m", text)}
        for n, text in enumerate(texts)
    ]
    path = tmp_path / "panels.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": written}]}))
    promtool("check", "rules", path)


def test_provisioning_finds_the_source_and_the_files() -> None:
    folder = DEPLOY / "grafana" / "provisioning"
    [source] = load(folder / "datasources" / "prometheus.yml")["datasources"]
    [provider] = load(folder / "dashboards" / "millrace.yml")["providers"]
    mounted = load(DEPLOY / "compose.yml")["services"]["grafana"]["volumes"]
    assert source["url"] == "http://prometheus:9090"
    assert any(provider["options"]["path"] in volume for volume in mounted)
