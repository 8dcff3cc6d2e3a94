"""Encryption of secrets, and the addresses that requests may reach."""
