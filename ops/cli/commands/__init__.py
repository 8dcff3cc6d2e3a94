"""The commands of `millrace`, a file for each kind; `ops/cli/main.py` puts them together."""
