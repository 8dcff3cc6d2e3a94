"""The last minute of every process, in Redis."""
