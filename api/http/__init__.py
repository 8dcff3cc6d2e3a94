"""HTTP plumbing that knows no job and no call: bodies, errors, headers, the connection."""
