"""Jobs that are read from a file or S3 (imports), and written to one (exports)."""
