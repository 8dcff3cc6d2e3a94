"""Rollouts: what their launches say, and what follows from it."""
