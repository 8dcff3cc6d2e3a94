"""Simulation of a pool under an autoscaler: the keeper's own decisions, and others beside them."""
