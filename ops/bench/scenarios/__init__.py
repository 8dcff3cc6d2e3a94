"""One file a `millrace bench` command."""
