"""The synchronous path: one inference call through Redis to a worker and back."""
