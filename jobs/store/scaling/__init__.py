"""Policies of pools, what was decided about them, and the work that calls brought."""
