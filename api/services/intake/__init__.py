"""Intake of a process: bodies in memory and on disk, small jobs that share a transaction."""
