"""The commands of `millrace`, a file for each kind; `ops/cli.py` puts them together."""
