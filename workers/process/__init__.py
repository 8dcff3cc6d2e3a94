"""A worker process: runtime, slices in hand, models in memory, status."""
