"""Dashboards: as the generator makes them, of metrics that there are."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ops.grafana.__main__ import FOLDER, text_of
from ops.grafana.dashboards import DASHBOARDS
from ops.grafana.panels import Dashboard
from tests.unit.ops.deploy.kit import DEPLOY, TARGET, left_by, load, promtool, series, wrong

PANELS = [(board, panel) for board in DASHBOARDS for panel in board.as_json()["panels"]]


def expressions(panel: dict[str, Any]) -> list[str]:
    return [target["expr"] for target in panel["targets"]]


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_the_files_are_what_the_generator_makes(board: Dashboard) -> None:
    assert (FOLDER / f"{board.name}.json").read_text() == text_of(board)


def test_there_is_no_file_of_a_dashboard_that_is_gone() -> None:
    names = {board.name for board in DASHBOARDS}
    assert {path.stem for path in FOLDER.glob("*.json")} == names


@pytest.mark.parametrize(("board", "panel"), PANELS)
def test_a_panel_asks_for_what_there_is(board: Dashboard, panel: dict[str, Any]) -> None:
    assert [fault for text in expressions(panel) for fault in wrong(text)] == []
    assert panel["description"]


@pytest.mark.parametrize("board", DASHBOARDS, ids=lambda board: board.name)
def test_variables_are_those_that_panels_use(board: Dashboard) -> None:
    text = json.dumps(board.as_json()["panels"])
    used = set(re.findall(r"\$(?!__|\{)(\w+)", text))
    assert used == set(board.variables)
    made = board.as_json()["templating"]["list"]
    assert [fault for one in made[1:] for fault in wrong(one["definition"].split("(")[1])] == []


def test_a_legend_names_labels_that_its_expression_leaves() -> None:
    for _, panel in PANELS:
        for target in panel["targets"]:
            named = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert named <= left_by(target["expr"], series()) | TARGET, target


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
