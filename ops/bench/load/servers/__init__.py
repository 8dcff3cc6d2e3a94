"""Servers that benchmarks start."""
