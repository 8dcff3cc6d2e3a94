"""Ops/bench/load/servers."""
