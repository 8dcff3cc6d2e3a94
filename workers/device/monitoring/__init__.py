"""Metrics, spans, log lines and the watchdog of launches."""
