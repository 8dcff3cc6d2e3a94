"""Servers whose place a second one takes: PostgreSQL with a standby, Redis behind Sentinels."""
