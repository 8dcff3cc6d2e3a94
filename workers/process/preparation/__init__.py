"""Preparation in a worker process: its settlement, and how far it may be ahead of the devices."""
