"""Jobs that are read from a file or from S3, and written to one, by a process beside the keeper."""
