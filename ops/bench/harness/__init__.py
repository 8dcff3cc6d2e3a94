"""Platforms, child processes, model files and a filled database for benchmarks."""
