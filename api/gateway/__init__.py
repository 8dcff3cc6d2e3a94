"""Synchronous calls: through Redis to a worker, and back."""
