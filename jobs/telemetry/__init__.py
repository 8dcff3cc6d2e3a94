"""Telemetry of processes: metrics, reports of the last minute, traces, logs."""
