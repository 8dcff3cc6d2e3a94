"""Gauges, diagnostics, workers as people look at them."""
