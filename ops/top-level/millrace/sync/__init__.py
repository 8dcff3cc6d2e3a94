# Generated from millrace.aio by ops/generate_sync_client.py; change it there.
"""Synchronous client, generated from the asynchronous one."""
