"""Chat completions and completions."""
