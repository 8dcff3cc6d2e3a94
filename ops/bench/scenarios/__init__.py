"""Scenarios of `millrace bench`, a file a command."""
