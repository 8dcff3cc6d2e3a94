"""Faults, their schedule and their targets."""
