"""Ledger, spend, quota, usage."""
