"""Tenants, keys, limits, stats, erasure, audit."""
