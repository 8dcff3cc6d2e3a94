"""Calls of a generation host: those that come, what they are sent, those whose clients left."""
