"""Metrics and traces of a generation host."""
