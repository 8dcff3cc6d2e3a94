"""Ops/bench/chaos/faults."""
