"""Keeper, the maintenance process (`python -m workers.keeper`): a file for each service."""
