"""Streams of generated tokens, read and put together."""
