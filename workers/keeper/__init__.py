"""The maintenance process (`python -m workers.keeper`): one file a periodic service."""
