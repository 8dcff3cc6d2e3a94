"""`millrace up`, and the parent of a worker."""
