"""Warm-up of a model that was loaded: launches that are measured, and limits found by them."""
