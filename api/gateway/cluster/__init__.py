"""Calls on a Redis Cluster."""
