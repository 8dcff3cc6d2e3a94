"""Answering of generation requests, shared by the APIs that others know."""
