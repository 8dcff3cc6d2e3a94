"""Prometheus metrics and how they are recorded."""
