"""Spans, W3C context, OTLP export."""
