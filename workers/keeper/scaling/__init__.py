"""Pools: their load, and the autoscaler that decides by it."""
