"""`main.py`, its checks, `commands/`."""
