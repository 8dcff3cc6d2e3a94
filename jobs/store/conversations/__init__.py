"""Conversations that clients keep here, and their items."""
