"""Worker process: runtime, slices in flight, models in memory, status."""
