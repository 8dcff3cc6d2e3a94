"""Figures of the whole system: gauges, probes, history."""
