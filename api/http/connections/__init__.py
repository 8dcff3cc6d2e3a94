"""Connections of clients, and turns of their requests."""
