"""Measurements of the running platform: `millrace bench NAME`."""
