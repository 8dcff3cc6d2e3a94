"""Child processes and their logs."""
