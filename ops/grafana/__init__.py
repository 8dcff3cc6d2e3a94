"""Dashboards for Grafana: `python -m ops.grafana` writes them to ops/deploy/grafana/dashboards."""
