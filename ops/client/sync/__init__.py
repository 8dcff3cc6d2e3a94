# Generated from ops/client/aio by ops/generate_sync_client.py; change it there.
"""Synchronous client, generated from `ops/client/aio`."""
