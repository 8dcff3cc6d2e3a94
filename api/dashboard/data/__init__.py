"""Data of the pages: telemetry, filters, caches."""
