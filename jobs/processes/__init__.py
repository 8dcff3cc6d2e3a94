"""Processes: the packages that they find, their start, and child processes that do tasks."""
