"""`millrace bench generate`: models that generate text, beside their engine alone."""
