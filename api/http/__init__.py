"""HTTP plumbing below jobs and calls: bodies, errors, headers, the connection."""
