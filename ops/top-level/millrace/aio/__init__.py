"""Asynchronous client. `millrace.sync` is generated from it, by `ops/generate_sync_client.py`."""
