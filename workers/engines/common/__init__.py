"""What engines share; the folder above keeps one file an engine."""
