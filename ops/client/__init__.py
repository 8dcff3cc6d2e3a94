"""Client of the HTTP API, readers and writers of files, progress bar, diff."""
