"""What pages ask for: telemetry, filters, caches."""
