"""HTTP, and nothing else: every use case is in `jobs`."""
