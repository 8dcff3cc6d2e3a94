"""Waiting sequences, turns of tenants, and the KV blocks that sequences need."""
